// The conversation on the page. Nodes are kept by message and item id, and drawn at most once a frame.

import { MARK } from "./app-frame.js";
import { element } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { pictureOf } from "./picture.js";
import { ToolCard, stateOf } from "./tool-card.js";

const NEAR_BOTTOM_PX = 24;

export class MessagesView {
  /**
   * @param {{scroller: HTMLElement, log: HTMLElement, latest: HTMLElement}} page
   * @param {import("./conversation.js").Conversation} conversation
   * @param {import("./app-frame.js").Apps} apps
   */
  constructor({ scroller, log, latest }, conversation, apps) {
    this.scroller = scroller;
    this.log = log;
    this.latest = latest;
    this.conversation = conversation;
    this.apps = apps;
    /** @type {Map<string, MessageView>} */
    this.views = new Map();
    this.notes = element("div", { class: "notes" });
    this.isFollowing = true;
    this.frame = 0;
    log.append(this.notes);
    scroller.addEventListener("scroll", () => this.noteScroll(), { passive: true });
    latest.addEventListener("click", () => this.follow());
    setInterval(() => this.tick(), 250);
  }

  /** Show another conversation. @param {import("./conversation.js").Conversation} conversation */
  show(conversation) {
    this.conversation = conversation;
    this.notes.replaceChildren();
    this.isFollowing = true;
    this.changed();
  }

  /** Draw with the next frame. */
  changed() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  /** A remark below the conversation, until the next turn. @param {...(Node | string)} parts */
  note(...parts) {
    this.notes.replaceChildren(element("div", { class: "note" }, ...parts));
    this.changed();
  }

  clearNote() {
    this.notes.replaceChildren();
  }

  /** Go to the end and stay there. */
  follow() {
    this.isFollowing = true;
    this.changed();
  }

  draw() {
    this.frame = 0;
    const shown = [...this.conversation.messages.values(), ...this.conversation.waiting.values()];
    const ids = new Set(shown.map((message) => message.id));
    for (const [id, view] of this.views) {
      if (ids.has(id)) continue;
      view.node.remove();
      this.views.delete(id);
    }
    let before = null;
    for (const message of shown) {
      let view = this.views.get(message.id);
      if (!view) this.views.set(message.id, (view = new MessageView(message.role, this.apps)));
      const place = before ? before.nextSibling : this.log.firstChild;
      if (place !== view.node) this.log.insertBefore(view.node, place);
      view.update(message, this.conversation.waiting.has(message.id));
      before = view.node;
    }
    if (this.isFollowing) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.noteScroll();
  }

  noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.isFollowing = scrollHeight - scrollTop - clientHeight <= NEAR_BOTTOM_PX;
    this.latest.hidden = this.isFollowing;
  }

  tick() {
    for (const view of this.views.values()) view.tick();
  }
}

class MessageView {
  /** @param {string} role @param {import("./app-frame.js").Apps} apps */
  constructor(role, apps) {
    this.role = role;
    this.apps = apps;
    const who = element("span", { class: "unseen" }, role === "user" ? "You said:" : "nanobot said:");
    this.node = element("article", { class: `message ${role}` }, who);
    /** @type {Map<string, {node: HTMLElement, update: (item: any) => void, tick?: () => void}>} */
    this.items = new Map();
    /** @type {import("./conversation.js").Message | undefined} */
    this.drawn = undefined;
    this.drawnItems = new Map();
  }

  /** @param {import("./conversation.js").Message} message @param {boolean} isWaiting */
  update(message, isWaiting) {
    this.node.classList.toggle("waiting", isWaiting);
    for (const [id, view] of this.items) {
      if (message.items.some((item) => item.id === id)) continue;
      view.node.remove();
      this.items.delete(id);
    }
    for (const item of message.items) {
      if (this.drawnItems.get(item.id) === signOf(item)) continue;
      this.drawnItems.set(item.id, signOf(item));
      let view = this.items.get(item.id);
      if (!view) {
        view = viewOf(item, this.role, this.apps);
        this.items.set(item.id, view);
        this.node.append(view.node);
      }
      view.update(item);
    }
  }

  tick() {
    for (const view of this.items.values()) view.tick?.();
  }
}

/** Changes when an item has to be drawn anew. */
const signOf = (item) =>
  [item.hasMore, item.text?.length, item.arguments?.length, item.summary?.[0]?.text.length, !!item.output, item.ms, item.progress?.progress].join();

/** @param {import("./conversation.js").Item} item @param {string} role @param {import("./app-frame.js").Apps} apps */
function viewOf(item, role, apps) {
  if (item.type === "tool") return toolCall(new ToolCard(), apps);
  if (item.type === "text") return role === "user" ? plainText() : markdown();
  if (item.type === "reasoning") return reasoning();
  return { node: pictureOf(item), update() {} };
}

/** A card, and below it the app of the tool, if it comes with one. Only a running tool changes by itself. */
function toolCall(card, apps) {
  const node = element("div", { class: "call" }, card.node);
  return {
    node,
    update(item) {
      card.update(item);
      if (item.output?._meta?.[MARK] && !node.querySelector(".app")) node.append(apps.place(item));
    },
    tick: () => card.item && stateOf(card.item) === "running" && card.tick(),
  };
}

function plainText() {
  const node = element("div", { class: "plain" });
  return { node, update: (item) => (node.textContent = item.text) };
}

function markdown() {
  const view = new MarkdownView();
  return { node: view.node, update: (item) => view.update(item.text ?? "") };
}

function reasoning() {
  const view = new MarkdownView();
  const node = element("details", { class: "reasoning" }, element("summary", {}, "Thinking"), view.node);
  return {
    node,
    update(item) {
      const text = (item.summary ?? []).map((part) => part.text).join("\n\n");
      node.hidden = !text;
      view.update(text);
    },
  };
}
