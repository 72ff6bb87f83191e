// One question to the person at a time, in a dialog. It gives the focus back to where it was.

import { byId, element } from "./dom.js";

let last = Promise.resolve();

/**
 * Ask; the questions of several wait for each other. `choices` are buttons beside “Cancel”, which is what stands
 * ready and what Escape means.
 * @param {string} question @param {{value: string, label: string, isDangerous?: boolean}[]} choices
 * @param {string} [detail] what it is about, shown as it is
 * @returns {Promise<string>} the value of a choice, "" for none
 */
export function ask(question, choices, detail = "") {
  const answer = last.then(() => show(question, choices, detail));
  last = answer.catch(() => {}).then(() => {});
  return answer;
}

function show(question, choices, detail) {
  const dialog = byId("confirm");
  byId("question").textContent = question;
  byId("detail").textContent = detail;
  byId("detail").hidden = !detail;
  const cancel = element("button", { class: "button", value: "", autofocus: true }, "Cancel");
  const others = choices.map(({ value, label, isDangerous }) =>
    element("button", { class: isDangerous ? "button danger" : "button", value }, label),
  );
  byId("choices").replaceChildren(cancel, ...others);
  dialog.returnValue = "";
  dialog.showModal();
  cancel.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}
