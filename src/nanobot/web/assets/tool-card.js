// One tool call: what was asked of whom, how it went, what came back.

import { copyButton, element } from "./dom.js";
import { pictureOf } from "./picture.js";

const SECRET = /token|secret|password|authorization|api[_-]?key/i;
const LONGEST_SHOWN = 20_000;

export class ToolCard {
  constructor() {
    this.name = element("span", { class: "tool-name" });
    this.server = element("span", { class: "tool-server" });
    this.state = element("span", { class: "tool-state" });
    const summary = element("summary", {}, this.name, this.server, this.state);
    this.body = element("div", { class: "tool-body" });
    this.node = element("details", { class: "tool" }, summary, this.body);
    // What is folded away is drawn when it is looked at.
    this.node.addEventListener("toggle", () => this.drawBody());
  }

  /** @param {import("./conversation.js").Item} item */
  update(item) {
    this.item = item;
    this.name.textContent = item.name ?? "tool";
    this.server.textContent = item.target ?? "";
    this.node.dataset.state = stateOf(item);
    this.tick();
    this.drawBody();
  }

  /** Draw what changes with time alone. */
  tick() {
    const item = this.item;
    switch (stateOf(item)) {
      case "running":
        this.state.textContent = `running ${percent(item.progress)}${seconds(Date.now() - item.seen)}`;
        break;
      case "ok":
        this.state.textContent = item.ms === undefined ? "ok" : `ok ${seconds(item.ms)}`;
        break;
      case "error":
        this.state.textContent = item.ms === undefined ? "error" : `error ${seconds(item.ms)}`;
        break;
      default:
        this.state.textContent = "no result";
    }
  }

  drawBody() {
    if (!this.node.open) return;
    const { output, progress } = this.item;
    const parts = [section("Arguments", pretty(this.item.arguments ?? ""))];
    if (progress?.message && !output) parts.push(section("Progress", progress.message));
    if (output) parts.push(...resultOf(output));
    this.body.replaceChildren(...parts);
  }
}

/** @param {import("./conversation.js").Item} item */
export function stateOf(item) {
  if (item.output) return item.output.isError ? "error" : "ok";
  return item.hasMore ? "running" : "unknown";
}

function resultOf(output) {
  const blocks = output.content ?? [];
  const text = blocks.filter((block) => block.type === "text").map((block) => block.text).join("\n");
  const parts = [section(output.isError ? "Error" : "Result", pretty(text) || (blocks.length ? "" : "(empty)"))];
  for (const block of blocks) if (block.type !== "text") parts.push(pictureOf(block));
  return parts;
}

function section(title, text) {
  const shown = text.length > LONGEST_SHOWN ? text.slice(0, LONGEST_SHOWN) + "\n… (shortened)" : text;
  const head = element("div", { class: "tool-part" }, title, copyButton(() => text));
  return element("div", {}, head, element("pre", { tabindex: "0" }, shown));
}

/** JSON indented, with values that look like secrets by their key masked; other text as it is. */
function pretty(text) {
  try {
    const value = JSON.parse(text);
    if (typeof value !== "object" || value === null) return text;
    return JSON.stringify(value, (key, inner) => (SECRET.test(key) && typeof inner === "string" ? "•••" : inner), 2);
  } catch {
    return text;
  }
}

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

const percent = (progress) => (progress?.total ? `${Math.round((100 * progress.progress) / progress.total)} % · ` : "");
