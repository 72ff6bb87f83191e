// Content that is not text: pictures that travel inside the message, and a named place for everything else.

import { element } from "./dom.js";
import { safeAddress } from "./inline.js";

const SHOWN = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/** @param {any} block a content block as MCP writes it */
export function pictureOf(block) {
  if (block.type === "image" && SHOWN.includes(block.mimeType)) {
    const src = `data:${block.mimeType};base64,${block.data}`;
    return element("img", { class: "picture", src, alt: "Picture" });
  }
  if (block.type === "resource_link") {
    const url = safeAddress(block.uri);
    const name = block.title || block.name || block.uri;
    if (!url) return element("span", { class: "chip" }, name);
    return element("a", { class: "chip", href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, name);
  }
  if (block.type === "resource" && typeof block.resource?.text === "string") {
    return element("pre", { tabindex: "0" }, block.resource.text);
  }
  return element("span", { class: "chip" }, block.resource?.uri ?? block.mimeType ?? block.type);
}
