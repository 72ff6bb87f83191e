// Inline Markdown → DOM: code, strong, emphasis, strike-through, links. Linear in practice: a mark that
// does not occur again is searched for once.

import { element } from "./dom.js";

const DEEPEST = 12;
const MOST_TRIES = 40;
const SPECIAL = /[\\`*_~[!h\n]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

/** Append `text` to `parent`. @param {Node} parent @param {string} text @param {number} [depth] */
export function appendInline(parent, text, depth = 0) {
  if (depth > DEEPEST) {
    parent.appendChild(document.createTextNode(text));
    return;
  }
  const missing = new Set();
  let plain = "";
  let at = 0;

  const flush = () => {
    if (plain) parent.appendChild(document.createTextNode(plain));
    plain = "";
  };
  const take = (node, end) => {
    flush();
    parent.appendChild(node);
    at = end;
  };

  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    at = next;
    if (at === text.length) break;
    const found =
      codeAt(text, at, missing) ?? linkAt(text, at, depth) ?? addressAt(text, at) ?? spanAt(text, at, missing, depth);
    if (found) take(found.node, found.end);
    else if (text[at] === "\n" && /( {2}|\\)$/.test(plain)) {
      plain = plain.replace(/( +|\\)$/, "");
      take(element("br"), at + 1);
    } else if (text[at] === "\\" && PUNCTUATION.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else plain += text[at++];
  }
  flush();
}

/** A link that may be followed; null for any other kind of address. @param {string} address */
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

function codeAt(text, at, missing) {
  if (text[at] !== "`") return null;
  const ticks = /^`+/.exec(text.slice(at, at + 20))[0];
  const start = at + ticks.length;
  if (missing.has(ticks)) return literally(ticks, start);
  let end = text.indexOf(ticks, start);
  while (end >= 0 && text[end + ticks.length] === "`") {
    let past = end;
    while (text[past] === "`") past++;
    end = text.indexOf(ticks, past);
  }
  if (end < 0) {
    missing.add(ticks);
    return literally(ticks, start);
  }
  const code = text.slice(start, end).replaceAll("\n", " ");
  return { node: element("code", {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code), end: end + ticks.length };
}

const literally = (text, end) => ({ node: document.createTextNode(text), end });

/** `[words](address "title")`. An image becomes a link: pictures from elsewhere are never loaded unasked. */
function linkAt(text, at, depth) {
  const isImage = text[at] === "!" && text[at + 1] === "[";
  if (!isImage && text[at] !== "[") return null;
  const start = at + (isImage ? 2 : 1);
  const middle = closingBracket(text, start);
  if (middle < 0 || text[middle + 1] !== "(") return null;
  const rest = text.slice(middle + 2, middle + 2 + 4000);
  const match = /^\s*<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(rest);
  if (!match) return null;
  const words = text.slice(start, middle);
  const end = middle + 2 + match[0].length;
  const url = safeAddress(match[1]);
  const node = url ? link(url) : element("span");
  appendInline(node, (isImage ? "Picture: " : "") + (words || match[1]), depth + 1);
  return { node, end };
}

function closingBracket(text, start) {
  let open = 1;
  for (let at = start; at < text.length && at < start + 2000; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === "[") open++;
    else if (text[at] === "]" && --open === 0) return at;
  }
  return -1;
}

/** An address written out: https://… */
function addressAt(text, at) {
  if (text[at] !== "h" || WORD.test(text[at - 1] ?? "")) return null;
  const match = /^https?:\/\/[^\s<>"'`]{1,2000}/.exec(text.slice(at, at + 2010));
  if (!match) return null;
  let address = match[0].replace(/[.,;:!?*_~\]]+$/, "");
  while (address.endsWith(")") && count(address, ")") > count(address, "(")) address = address.slice(0, -1);
  const url = safeAddress(address);
  if (!url) return null;
  const node = link(url);
  node.append(address);
  return { node, end: at + address.length };
}

const count = (text, mark) => text.split(mark).length - 1;

function link(url) {
  const rel = "noopener noreferrer nofollow";
  return element("a", { href: url.href, target: "_blank", rel, title: url.host || url.pathname });
}

const SPANS = [
  ["***", "strong"],
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

function spanAt(text, at, missing, depth) {
  for (const [mark, tag] of SPANS) {
    if (!text.startsWith(mark, at) || missing.has(mark)) continue;
    const start = at + mark.length;
    if (/^\s?$/.test(text[start] ?? "") || (mark[0] === "_" && WORD.test(text[at - 1] ?? ""))) continue;
    const end = closingMark(text, mark, start);
    if (end < 0) {
      missing.add(mark);
      continue;
    }
    const node = element(tag);
    let inner = node;
    if (mark === "***") inner = node.appendChild(element("em"));
    appendInline(inner, text.slice(start, end), depth + 1);
    return { node, end: end + mark.length };
  }
  return null;
}

function closingMark(text, mark, start) {
  let end = start;
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    end = text.indexOf(mark, end + 1);
    if (end < 0) return -1;
    const after = text[end + mark.length] ?? "";
    const isPartOfLonger = mark.length === 1 && (after === mark || text[end - 1] === mark);
    const isInsideWord = mark[0] === "_" && WORD.test(after);
    if (!/\s/.test(text[end - 1]) && !isPartOfLonger && !isInsideWord) return end;
    if (isPartOfLonger && after === mark) end++;
  }
  return -1;
}
