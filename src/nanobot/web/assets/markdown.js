// Markdown → DOM, block by block: while an answer grows only its last block is drawn anew.

import { copyButton, element } from "./dom.js";
import { appendInline } from "./inline.js";

const DEEPEST = 8;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const LIST = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** A piece of Markdown that can grow: `update` draws what changed. */
export class MarkdownView {
  constructor() {
    this.node = element("div", { class: "markdown" });
    /** @type {string[]} */
    this.sources = [];
  }

  /** @param {string} text */
  update(text) {
    const blocks = blocksOf(text);
    let same = 0;
    while (same < blocks.length && this.sources[same] === blocks[same].key) same++;
    while (this.node.childNodes.length > same) this.node.lastChild?.remove();
    for (const block of blocks.slice(same)) this.node.append(draw(block, 0));
    this.sources = blocks.map((block) => block.key);
  }
}

/**
 * @typedef {{kind: string, lines: string[], key: string, info?: string, level?: number}} Block
 * @param {string} text @returns {Block[]}
 */
export function blocksOf(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const [block, end] = blockAt(lines, at);
    block.key = block.kind + "\n" + lines.slice(at, end).join("\n");
    blocks.push(block);
    at = end;
  }
  return blocks;
}

function blockAt(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenceAt(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, lines: [heading[2]] }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule", lines: [] }, at + 1];
  if (QUOTE.test(line)) return quoteAt(lines, at);
  if (LIST.test(line)) return listAt(lines, at);
  if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) return tableAt(lines, at);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !interrupts(lines[end])) end++;
  return [{ kind: "paragraph", lines: lines.slice(at, end) }, end];
}

function interrupts(line) {
  const list = LIST.exec(line);
  if (list) return !/\d/.test(list[2]) || Number.parseInt(list[2]) === 1;
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function fenceAt(lines, at, [, mark, info]) {
  let end = at + 1;
  const isEnd = (line) => /^ {0,3}(`{3,}|~{3,})\s*$/.test(line) && line.trim().startsWith(mark);
  while (end < lines.length && !isEnd(lines[end])) end++;
  return [{ kind: "code", info: info.trim().split(/\s/)[0], lines: lines.slice(at + 1, end) }, end + 1];
}

function quoteAt(lines, at) {
  let end = at;
  while (end < lines.length && lines[end].trim() && (QUOTE.test(lines[end]) || !interrupts(lines[end]))) end++;
  return [{ kind: "quote", lines: lines.slice(at, end).map((line) => line.replace(QUOTE, "")) }, end];
}

function listAt(lines, at) {
  const isOrdered = /\d/.test(LIST.exec(lines[at])[2]);
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const mark = LIST.exec(line);
    if (mark) {
      if (/\d/.test(mark[2]) !== isOrdered && mark[1].length < 2) break;
    } else if (!line.trim()) {
      const next = lines[end + 1] ?? "";
      if (!/^\s{2,}\S/.test(next) && !LIST.test(next)) break;
    } else if (!/^\s/.test(line) && (!lines[end - 1].trim() || interrupts(line))) break;
  }
  return [{ kind: isOrdered ? "ordered" : "bulleted", lines: lines.slice(at, end) }, end];
}

function tableAt(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  return [{ kind: "table", lines: lines.slice(at, end) }, end];
}

/** @param {Block} block @param {number} depth */
function draw(block, depth) {
  switch (block.kind) {
    case "heading":
      // The page has its own first headings; those of an answer stand below them.
      return inline(element(`h${Math.min(block.level + 2, 6)}`), block.lines);
    case "rule":
      return element("hr");
    case "code":
      return code(block);
    case "quote":
      return nested(element("blockquote"), block.lines, depth);
    case "ordered":
    case "bulleted":
      return list(block, depth);
    case "table":
      return table(block);
    default:
      return inline(element("p"), block.lines.map((line) => line.replace(/^\s+/, "")));
  }
}

function inline(node, lines) {
  appendInline(node, lines.join("\n"));
  return node;
}

function nested(node, lines, depth) {
  if (depth >= DEEPEST) return inline(node, lines);
  for (const block of blocksOf(lines.join("\n"))) node.append(draw(block, depth + 1));
  return node;
}

function code({ info, lines }) {
  const text = lines.join("\n");
  const head = element("figcaption", {}, info || "text", copyButton(() => text));
  return element("figure", { class: "code" }, head, element("pre", { tabindex: "0" }, element("code", {}, text)));
}

function list(block, depth) {
  const isOrdered = block.kind === "ordered";
  const start = isOrdered ? Number.parseInt(LIST.exec(block.lines[0])[2]) : 1;
  const node = element(isOrdered ? "ol" : "ul", start === 1 ? {} : { start });
  for (const lines of itemsOf(block.lines)) {
    const item = nested(element("li"), lines, depth);
    // A tight item is its text, not a paragraph around it.
    if (item.firstElementChild?.tagName === "P" && !lines.some((line) => !line.trim())) {
      item.firstElementChild.replaceWith(...item.firstElementChild.childNodes);
    }
    node.append(item);
  }
  return node;
}

/** The lines of each item, without its mark and indentation. */
function itemsOf(lines) {
  const items = [];
  let width = 0;
  for (const line of lines) {
    const mark = LIST.exec(line);
    if (mark && (!items.length || mark[1].length < width)) {
      width = mark[0].length || 2;
      items.push([line.slice(mark[0].length)]);
    } else items.at(-1).push(line.replace(new RegExp(`^\\s{0,${width}}`), ""));
  }
  return items.map((item) => trimmed(item));
}

function trimmed(lines) {
  let end = lines.length;
  while (end > 1 && !lines[end - 1].trim()) end--;
  return lines.slice(0, end);
}

function table({ lines }) {
  const [head, , ...body] = lines.map(cellsOf);
  const row = (tag, cells) =>
    element("tr", {}, ...head.map((_, at) => inline(element(tag), [cells[at] ?? ""])));
  const parts = [element("thead", {}, row("th", head)), element("tbody", {}, ...body.map((cells) => row("td", cells)))];
  return element("div", { class: "table", tabindex: "0" }, element("table", {}, ...parts));
}

function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
