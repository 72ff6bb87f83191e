// The box a person writes in: it grows with the text, sends with Enter, and turns into Stop while a turn runs.

import { byId, element, icon } from "./dom.js";

export class Composer {
  /** @param {{send: (text: string) => Promise<boolean>, stop: () => void}} app */
  constructor(app) {
    this.app = app;
    this.form = byId("composer");
    this.text = byId("text");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    this.agents = byId("agent");
    this.isSending = false;

    this.sendButton.append(icon("send"));
    this.stopButton.append(icon("stop"));
    this.stopButton.addEventListener("click", () => app.stop());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.text.addEventListener("input", () => this.fit());
    this.text.addEventListener("keydown", (event) => {
      // While an input method composes a word, Enter belongs to it (229: as some browsers tell it).
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      this.send();
    });
    this.fit();
  }

  /** The agent that answers; "" leaves it to the server. */
  get agent() {
    return this.agents.value;
  }

  set agent(id) {
    if ([...this.agents.options].some((option) => option.value === id)) this.agents.value = id;
  }

  offerAgents(agents) {
    this.agents.replaceChildren(...agents.map((agent) => element("option", { value: agent.id }, agent.name)));
    byId("agent-label").hidden = agents.length < 2;
  }

  /** Stop stands where Send was, unless something is written that could be sent. @param {boolean} isRunning */
  running(isRunning) {
    this.isRunning = isRunning;
    this.fit();
  }

  fill(text) {
    this.text.value = text;
    this.fit();
    this.text.focus();
  }

  async send() {
    const text = this.text.value.trim();
    if (!text || this.isSending) return;
    this.isSending = true;
    this.text.value = "";
    this.fit();
    const isSent = await this.app.send(text);
    this.isSending = false;
    if (!isSent && !this.text.value) this.text.value = text;
    this.fit();
    this.text.focus();
  }

  fit() {
    const isEmpty = !this.text.value.trim();
    this.stopButton.hidden = !this.isRunning;
    this.sendButton.hidden = Boolean(this.isRunning) && isEmpty;
    this.sendButton.disabled = isEmpty || this.isSending;
    this.text.rows = Math.min(10, this.text.value.split("\n").length);
  }
}
