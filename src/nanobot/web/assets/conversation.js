// What was said, assembled from the messages of the event stream. Knows nothing of the page.

/**
 * @typedef {{id: string, type: string, partial?: boolean, hasMore?: boolean, text?: string, name?: string,
 *   callID?: string, arguments?: string, target?: string, output?: any, ms?: number, progress?: any,
 *   seen?: number, summary?: {text: string}[]}} Item
 * @typedef {{id: string, role: string, items: Item[], hasMore?: boolean}} Message
 */

export class Conversation {
  constructor() {
    /** @type {Map<string, Message>} in order */
    this.messages = new Map();
    /** @type {Map<string, Message>} sent, but not begun */
    this.waiting = new Map();
  }

  /** Take `history` for the truth: what is not in it is gone. @param {Message[]} history */
  replaceAll(history) {
    this.messages = new Map();
    for (const message of history) this.apply(message);
  }

  /** Add news to a message, or a new message. @param {Message} news */
  apply(news) {
    this.waiting.delete(news.id);
    const known = this.messages.get(news.id);
    if (!known) {
      this.messages.set(news.id, { ...news, items: news.items.map((item) => merged(undefined, item)) });
      return;
    }
    known.hasMore = news.hasMore;
    const before = new Map(known.items.map((item) => [item.id, item]));
    const changed = news.items.map((item) => merged(before.get(item.id), item));
    if (!news.hasMore) {
      known.items = changed;
      return;
    }
    for (const item of changed) before.set(item.id, item);
    known.items = [...before.values()];
  }

  /** Note how far a running tool is. @param {{callID: string}} news */
  progress(news) {
    for (const message of this.messages.values()) {
      const item = message.items.find((one) => one.callID === news.callID && !one.output);
      if (item) item.progress = news;
    }
  }

  /** No turn runs: nothing grows any more. */
  settle() {
    for (const message of this.messages.values()) {
      message.hasMore = false;
      for (const item of message.items) item.hasMore = false;
    }
  }

  /** The text of the newest message of the person; "" if there is none. */
  lastQuestion() {
    const asked = [...this.messages.values()].filter((m) => m.role === "user").at(-1);
    return asked ? asked.items.map((item) => item.text ?? "").join("") : "";
  }
}

/** @param {Item | undefined} known @param {Item} news @returns {Item} */
function merged(known, news) {
  if (!known) return { seen: Date.now(), ...news };
  if (!news.partial) return { ...kept(known), ...news };
  return {
    ...known,
    hasMore: news.hasMore,
    ...(news.text !== undefined && { text: (known.text ?? "") + news.text }),
    ...(news.arguments !== undefined && { arguments: (known.arguments ?? "") + news.arguments }),
    ...(news.summary && { summary: [{ text: joined(known.summary) + joined(news.summary) }] }),
  };
}

/** What a complete item does not tell anew. @param {Item} known */
function kept({ seen, output, ms, progress }) {
  return { seen, ...(output && { output, ms }), ...(progress && { progress }) };
}

const joined = (summary) => (summary ?? []).map((part) => part.text).join("\n\n");
