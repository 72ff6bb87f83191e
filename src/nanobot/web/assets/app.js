// The chat: which thread is shown, what its turn is doing, and what the person does about it.

import { createThread, listAgents, sendMessage, stopTurn } from "./api.js";
import { Apps } from "./app-frame.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { byId, element } from "./dom.js";
import { followThread } from "./events.js";
import { MessagesView } from "./messages.js";
import { Sidebar } from "./sidebar.js";

const TITLE_LENGTH = 60;
const INTERRUPTED = "The connection is interrupted. Trying again…";

class App {
  constructor() {
    this.thread = "";
    this.conversation = new Conversation();
    this.agents = [];
    this.leave = () => {};
    this.attached = Promise.resolve();
    const page = { scroller: byId("scroller"), log: byId("log"), latest: byId("latest") };
    const apps = new Apps({
      thread: () => this.thread,
      send: (text) => this.send(text),
      grew: () => this.messages.changed(),
    });
    this.messages = new MessagesView(page, this.conversation, apps);
    this.sidebar = new Sidebar({ go: (path) => this.go(path), failed: (error) => this.fail(error) });
    this.composer = new Composer({ send: (text) => this.send(text), stop: () => this.stop() });
  }

  async start() {
    addEventListener("popstate", () => this.show(location.pathname));
    const question = new URLSearchParams(location.search).get("q");
    if (question) this.composer.fill(question); // never sent by itself
    await Promise.all([this.loadAgents(), this.sidebar.refresh()]);
    this.show(location.pathname);
  }

  async loadAgents() {
    try {
      this.agents = await listAgents();
      this.composer.offerAgents(this.agents);
    } catch (error) {
      this.fail(error, () => this.loadAgents());
    }
  }

  go(path) {
    history.pushState(null, "", path);
    this.show(path);
  }

  /** Show the chat that belongs to a path. @param {string} path */
  show(path) {
    this.leave();
    this.leave = () => {};
    this.thread = /^\/c\/([^/]+)$/.exec(path)?.[1] ?? "";
    this.conversation = new Conversation();
    this.messages.show(this.conversation);
    this.running(false);
    this.hideBanner();
    this.sidebar.mark(this.thread);
    this.drawTitle();
    this.drawWelcome();
    if (this.thread) {
      const used = this.sidebar.threads.find((one) => one.id === this.thread)?.agent;
      if (used) this.composer.agent = used;
      this.follow();
    }
    this.composer.text.focus();
  }

  follow() {
    const { conversation } = this;
    let attached = () => {};
    /** Settled once events are coming, or will not: a message sent before that might go unannounced. */
    this.attached = new Promise((resolve) => (attached = resolve));
    this.leave = followThread(this.thread, {
      history: (messages) => {
        conversation.replaceAll(messages);
        conversation.settle();
        this.running(false);
        this.messages.changed();
        attached();
      },
      message: (message) => {
        conversation.apply(message);
        this.messages.changed();
      },
      progress: (news) => {
        conversation.progress(news);
        this.messages.changed();
      },
      started: () => {
        this.running(true);
        this.messages.clearNote();
        this.say("Responding.");
      },
      done: (turn) => this.finish(turn),
      retrying: (news) => this.messages.note(retryText(news)),
      deleted: () => {
        this.running(false);
        this.banner("There is no such chat (any more).");
        this.sidebar.refresh();
      },
      connection: (isConnected) => {
        if (!isConnected) attached();
        if (!isConnected) this.banner(INTERRUPTED);
        else if (byId("banner").textContent === INTERRUPTED) this.hideBanner();
      },
    });
  }

  /** @param {{stop: string, error?: string}} turn */
  finish(turn) {
    this.running(false);
    this.conversation.settle();
    if (turn.stop === "completed") this.messages.clearNote();
    else if (turn.stop === "cancelled") this.messages.note("Stopped.");
    else this.noteFailure(turn);
    this.messages.changed();
    this.say(turn.stop === "completed" ? "Done." : "The answer ended early.");
    this.sidebar.refresh().then(() => this.drawTitle());
  }

  noteFailure(turn) {
    const again = element("button", { type: "button", class: "button" }, "Retry");
    again.addEventListener("click", () => this.send(this.conversation.lastQuestion()));
    this.messages.note(turn.error || `The answer ended early (${turn.stop}).`, again);
  }

  /** Hand over a message; false if that failed, which the person is told. @param {string} text */
  async send(text) {
    this.hideBanner();
    this.messages.clearNote();
    try {
      if (!this.thread) await this.begin(text);
      const { thread } = this;
      await this.attached;
      const { message } = await sendMessage(thread, text, this.composer.agent);
      if (thread === this.thread) this.showWaiting(message, text);
      return true;
    } catch (error) {
      this.fail(error, () => this.retry(text));
      return false;
    }
  }

  async retry(text) {
    if (await this.send(text)) this.composer.fill("");
  }

  /** Until the event stream tells of it, a sent message is shown as waiting. */
  showWaiting(id, text) {
    if (!this.conversation.messages.has(id)) {
      this.conversation.waiting.set(id, { id, role: "user", items: [{ id: `${id}-text`, type: "text", text }] });
    }
    this.messages.follow();
  }

  async begin(text) {
    const line = text.replace(/\s+/g, " ");
    const title = line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
    const thread = await createThread(this.composer.agent, title);
    this.sidebar.threads.unshift(thread);
    this.go(`/c/${thread.id}`);
  }

  async stop() {
    try {
      await stopTurn(this.thread);
    } catch (error) {
      this.fail(error, () => this.stop());
    }
  }

  running(isRunning) {
    this.composer.running(isRunning);
    byId("log").setAttribute("aria-busy", String(isRunning));
  }

  drawTitle() {
    const title = this.sidebar.titleOf(this.thread) || (this.thread ? "Chat" : "New chat");
    byId("title").textContent = title;
    document.title = `${title} · nanobot`;
  }

  drawWelcome() {
    const welcome = byId("welcome");
    welcome.hidden = Boolean(this.thread);
    if (this.thread) return;
    const agent = this.agents.find((one) => one.id === this.composer.agent) ?? this.agents[0];
    const starters = (agent?.starterMessages ?? []).map((text) => {
      const button = element("button", { type: "button", class: "button" }, text);
      button.addEventListener("click", () => this.composer.fill(text));
      return button;
    });
    welcome.replaceChildren(
      element("h2", {}, agent?.name ?? "nanobot"),
      element("p", {}, agent?.description || "What shall we do?"),
      element("div", { class: "starters" }, ...starters),
    );
  }

  /** Tell people who do not see the page. @param {string} text */
  say(text) {
    byId("status").textContent = text;
  }

  /** @param {Error} error @param {() => void} [again] */
  fail(error, again) {
    console.info("request failed:", error.message);
    this.banner(error.message, again);
  }

  banner(text, again) {
    const banner = byId("banner");
    banner.replaceChildren(element("span", {}, text));
    if (again) {
      const retry = element("button", { type: "button", class: "button" }, "Retry");
      retry.addEventListener("click", () => {
        this.hideBanner();
        again();
      });
      banner.append(retry);
    }
    banner.hidden = false;
  }

  hideBanner() {
    byId("banner").hidden = true;
  }
}

function retryText(news) {
  if (news.state !== "waiting") return "";
  return `The model provider did not answer (${news.reason}); trying again in ${Math.ceil(news.waitMs / 1000)} s.`;
}

const app = new App();
byId("agent").addEventListener("change", () => app.drawWelcome());
app.start();
