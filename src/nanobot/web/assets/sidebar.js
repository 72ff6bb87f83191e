// The list of chats: a column beside the conversation, a drawer where there is no room for one.

import { deleteThread, listThreads } from "./api.js";
import { ask } from "./ask.js";
import { byId, element, icon } from "./dom.js";

export class Sidebar {
  /** @param {{go: (path: string) => void, failed: (error: Error) => void}} app */
  constructor(app) {
    this.app = app;
    this.node = byId("sidebar");
    this.shade = byId("shade");
    this.menu = byId("menu");
    this.list = byId("threads");
    this.threads = [];
    this.current = "";

    this.menu.append(icon("menu"));
    this.menu.addEventListener("click", () => this.open(!this.isOpen));
    this.shade.addEventListener("click", () => this.open(false));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOpen) {
        this.open(false);
        this.menu.focus();
      }
    });
    this.node.addEventListener("click", (event) => this.followLink(event));
  }

  get isOpen() {
    return this.node.classList.contains("open");
  }

  open(isOpen) {
    this.node.classList.toggle("open", isOpen);
    this.shade.hidden = !isOpen;
    this.menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.node.querySelector("a")?.focus();
  }

  /** Ask for the list again and draw it. */
  async refresh() {
    try {
      this.threads = await listThreads();
      this.draw();
    } catch (error) {
      this.app.failed(error);
    }
  }

  /** @param {string} id of the chat that is shown, "" for a new one */
  mark(id) {
    this.current = id;
    this.draw();
  }

  /** @param {string} id */
  titleOf(id) {
    const thread = this.threads.find((one) => one.id === id);
    return thread ? thread.title || "Untitled chat" : "";
  }

  draw() {
    this.list.replaceChildren(...this.threads.map((thread) => this.entry(thread)));
  }

  entry(thread) {
    const title = thread.title || "Untitled chat";
    const isCurrent = thread.id === this.current;
    const link = element("a", { href: `/c/${thread.id}`, "aria-current": isCurrent && "page" }, title);
    const label = `Delete chat ${title}`;
    const remove = element("button", { type: "button", class: "quiet", "aria-label": label, title: "Delete" }, icon("trash"));
    remove.addEventListener("click", () => this.remove(thread, title));
    return element("li", {}, link, remove);
  }

  async remove(thread, title) {
    const choices = [{ value: "delete", label: "Delete", isDangerous: true }];
    if (!(await ask(`Delete “${title}”? Its messages are gone for good.`, choices))) return;
    try {
      await deleteThread(thread.id);
      if (thread.id === this.current) this.app.go("/");
      await this.refresh();
    } catch (error) {
      this.app.failed(error);
    }
  }

  /** Links of ours change what is shown without loading the page anew. */
  followLink(event) {
    const link = event.target.closest?.("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    this.open(false);
    this.app.go(link.getAttribute("href"));
  }
}
