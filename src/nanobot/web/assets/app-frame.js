// MCP Apps in the conversation: the user interface of a tool, in a frame that cannot reach the page.

import { askApp, openApp } from "./api.js";
import { AppBridge, RpcError } from "./app-bridge.js";
import { ask } from "./ask.js";
import { element } from "./dom.js";
import { safeAddress } from "./inline.js";

export const MARK = "ai.nanobot.meta/app";

const MOST_LIVE = 20;
const LOWEST_PX = 40;
const HIGHEST_SHARE = 0.8;
const SANDBOX = "allow-scripts allow-forms"; // with `allow-same-origin` it could take the page over

/** Of our colours and type, under the names that apps know. */
const STYLES = {
  "--color-background-primary": "--paper",
  "--color-background-secondary": "--raised",
  "--color-background-tertiary": "--sunken",
  "--color-background-danger": "--bad-paper",
  "--color-text-primary": "--ink",
  "--color-text-secondary": "--soft",
  "--color-text-info": "--accent-ink",
  "--color-text-success": "--good",
  "--color-text-danger": "--bad",
  "--color-border-primary": "--line",
  "--color-border-secondary": "--line",
  "--color-ring-primary": "--accent",
  "--font-sans": "--sans",
  "--font-mono": "--mono",
};

const dark = matchMedia("(prefers-color-scheme: dark)");

/** All apps of the page. */
export class Apps {
  /** @param {{thread: () => string, send: (text: string) => Promise<boolean>, grew: () => void}} chat */
  constructor(chat) {
    this.chat = chat;
    /** @type {AppFrame[]} the longest shown first */
    this.live = [];
    addEventListener("message", (event) => this.live.find((one) => one.isFrom(event))?.bridge.take(event.data));
    dark.addEventListener("change", () => {
      for (const one of this.live) one.bridge.tell("ui/notifications/host-context-changed", surroundings());
    });
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        this.seen.unobserve(target);
        this.waiting.get(target)?.open();
      }
    });
    this.waiting = new WeakMap();
  }

  /** The place of a call's app, which is opened when it is looked at. @param {import("./conversation.js").Item} item */
  place(item) {
    const frame = new AppFrame(this, item);
    this.waiting.set(frame.node, frame);
    this.seen.observe(frame.node);
    return frame.node;
  }

  /** @param {AppFrame} frame */
  began(frame) {
    this.live = this.live.filter((one) => one.node.isConnected);
    this.live.push(frame);
    if (this.live.length > MOST_LIVE) this.live.shift()?.fold();
  }
}

class AppFrame {
  /** @param {Apps} apps @param {import("./conversation.js").Item} item */
  constructor(apps, item) {
    this.apps = apps;
    this.item = item;
    this.thread = apps.chat.thread();
    this.node = element("div", { class: "app" });
    /** @type {AppBridge} */
    this.bridge = new AppBridge((message) => this.frame?.contentWindow?.postMessage(message, "*"), callOf(item), {
      info: () => this.app.host,
      context: () => this.context(),
      server: (method, params) => this.server(method, params),
      openLink: (url) => this.openLink(url),
      say: (text) => this.say(text),
      resized: (height) => this.resize(height),
    });
  }

  async open() {
    try {
      this.app = await openApp(this.thread, this.item.callID);
    } catch (error) {
      this.node.replaceChildren(element("p", { class: "note" }, error.message), this.again("Try again"));
      return;
    }
    this.frame = element("iframe", {
      src: `/mcp-app/${this.app.id}`,
      sandbox: SANDBOX,
      referrerpolicy: "no-referrer",
      title: `${this.item.name} (${this.app.server})`,
    });
    this.node.replaceChildren(this.frame);
    this.apps.began(this);
    this.apps.chat.grew();
  }

  /** Give the place to newer ones. */
  fold() {
    this.frame = undefined;
    this.node.replaceChildren(this.again("Show again"));
  }

  again(label) {
    const button = element("button", { type: "button", class: "button" }, label);
    button.addEventListener("click", () => this.open());
    return button;
  }

  /** Whether a message comes from this app: from its frame, which has no origin that could be told from others. */
  isFrom(event) {
    return this.frame !== undefined && event.source === this.frame.contentWindow && event.origin === "null";
  }

  context() {
    const { tool } = this.app;
    return {
      ...surroundings(),
      ...(tool && { toolInfo: { id: this.item.callID, tool } }),
      displayMode: "inline",
      availableDisplayModes: ["inline"],
      containerDimensions: { width: this.node.clientWidth, maxHeight: highest() },
    };
  }

  resize(height) {
    this.frame.style.height = `${Math.min(Math.max(height, LOWEST_PX), highest())}px`;
    this.apps.chat.grew();
  }

  async server(method, params) {
    let result = await this.request(method, params);
    const question = result?.resultType === "input_required" && result.inputRequests?.approval?.params;
    if (question) {
      const answer = await decided(`An app of ${this.app.server} wants to run a tool.`, question);
      result = await this.request(method, { ...params, inputResponses: { approval: answer } });
    }
    return result;
  }

  async request(method, params) {
    const { result, error } = await askApp(this.app.id, method, params);
    if (error) throw new RpcError(error.code, error.message);
    return result;
  }

  async openLink(address) {
    const url = safeAddress(address);
    if (!url || url.protocol === "mailto:") return false;
    const choices = [{ value: "open", label: `Open ${url.host}` }];
    if (!(await ask(`An app of ${this.app.server} wants to open a page elsewhere.`, choices, url.href))) return false;
    open(url.href, "_blank", "noopener,noreferrer");
    return true;
  }

  async say(text) {
    if (!text) return false;
    const question = `An app of ${this.app.server} wants to say this in your name.`;
    if (!(await ask(question, [{ value: "send", label: "Send it" }], text))) return false;
    return this.thread === this.apps.chat.thread() && this.apps.chat.send(text);
  }
}

/** The answer of the person to the question whether a tool may run. */
async function decided(about, { message, requestedSchema }) {
  const { enum: values, enumNames: labels } = requestedSchema.properties.decision;
  const choices = values.map((value, at) => ({ value, label: labels[at] })).filter(({ value }) => value !== "no");
  const decision = await ask(about, choices, message);
  return decision ? { action: "accept", content: { decision } } : { action: "decline" };
}

function callOf(item) {
  const { _meta: { [MARK]: _, ...meta } = {}, ...result } = item.output;
  let given = {};
  try {
    given = JSON.parse(item.arguments || "{}") ?? {};
  } catch {
    // the server has seen what could be made of it; the app is told of none
  }
  return { arguments: given, result: { ...result, _meta: meta } };
}

function surroundings() {
  const ours = getComputedStyle(document.documentElement);
  const variables = Object.fromEntries(
    Object.entries(STYLES).map(([theirs, name]) => [theirs, ours.getPropertyValue(name).trim()]),
  );
  return {
    theme: dark.matches ? "dark" : "light",
    styles: { variables },
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    platform: "web",
  };
}

const highest = () => Math.round(innerHeight * HIGHEST_SHARE);
