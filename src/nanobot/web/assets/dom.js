// Elements are built by hand: no text of a model, a tool or a person is ever parsed as HTML.

/**
 * A new element. `on…` attributes are event listeners; `true` writes an empty attribute, `false` none.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  copy: "M9 9h10v10H9zM5 15V5h10",
};

/** A line icon; the control around it carries the label. @param {keyof typeof PATHS} name */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** The element of the page with this id. @param {string} id */
export function byId(id) {
  return /** @type {any} */ (document.getElementById(id));
}

/** A small button that copies what `text` gives when it is pressed. @param {() => string} text */
export function copyButton(text) {
  const button = element("button", { type: "button", class: "copy quiet", "aria-label": "Copy" }, icon("copy"));
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
  return button;
}
