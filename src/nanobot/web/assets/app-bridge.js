// What an MCP App and its host say to each other: JSON-RPC by `postMessage`, in the dialect of 2026-01-26.
// Knows neither the page nor the server; what an app wants goes to its `host`.

const PROTOCOL = "2026-01-26";
const LONGEST_MESSAGE = 64 * 1024;
const MOST_PER_SECOND = 20;

const UNKNOWN_METHOD = -32601;
const INVALID_REQUEST = -32600;
const FAILED = -32603;

/**
 * @typedef {object} Host
 * @property {() => object} info              name and version of what shows the app
 * @property {() => object} context           what the app is told of its surroundings
 * @property {(method: string, params: any) => Promise<any>} server  asks its server; a `RpcError` if that fails
 * @property {(url: string) => Promise<boolean>} openLink            whether the person wanted it
 * @property {(text: string) => Promise<boolean>} say                whether the person said it
 * @property {(height: number) => void} resized
 */

export class RpcError extends Error {
  /** @param {number} code @param {string} message */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export class AppBridge {
  /**
   * @param {(message: object) => void} post to the app
   * @param {{arguments: object, result: object}} call the call that it is shown for
   * @param {Host} host
   */
  constructor(post, call, host) {
    this.post = post;
    this.call = call;
    this.host = host;
    this.second = 0;
    this.count = 0;
    this.isAsking = false;
  }

  /** Take what the app sent. @param {any} message */
  async take(message) {
    if (message?.jsonrpc !== "2.0" || typeof message.method !== "string") return;
    const { id, method } = message;
    const isRequest = typeof id === "string" || typeof id === "number";
    if (!isRequest) return this.hear(method, message.params ?? {});
    const refusal = this.refusal(message);
    try {
      if (refusal) throw new RpcError(INVALID_REQUEST, refusal);
      this.post({ jsonrpc: "2.0", id, result: await this.answer(method, message.params ?? {}) });
    } catch (error) {
      const code = error instanceof RpcError ? error.code : FAILED;
      this.post({ jsonrpc: "2.0", id, error: { code, message: error.message } });
    }
  }

  /** Tell the app of something. @param {string} method @param {object} params */
  tell(method, params) {
    this.post({ jsonrpc: "2.0", method, params });
  }

  /** Why a request is not carried out; "" if it is. What only tells of a size costs nothing and is not counted. */
  refusal(message) {
    const second = Math.floor(Date.now() / 1000);
    this.count = second === this.second ? this.count + 1 : 1;
    this.second = second;
    if (this.count > MOST_PER_SECOND) return `at most ${MOST_PER_SECOND} requests a second are taken`;
    if (JSON.stringify(message).length > LONGEST_MESSAGE) return "the message is too long";
    return "";
  }

  hear(method, params) {
    if (method === "ui/notifications/initialized") {
      this.tell("ui/notifications/tool-input", { arguments: this.call.arguments });
      this.tell("ui/notifications/tool-result", this.call.result);
    } else if (method === "ui/notifications/size-changed" && Number.isFinite(params.height)) {
      this.host.resized(params.height);
    }
  }

  async answer(method, params) {
    switch (method) {
      case "ui/initialize":
        return {
          protocolVersion: PROTOCOL,
          hostInfo: this.host.info(),
          hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, message: { text: {} } },
          hostContext: this.host.context(),
        };
      case "ping":
        return {};
      case "tools/call":
        return this.host.server(method, { name: params.name, arguments: params.arguments ?? {} });
      case "resources/read":
        return this.host.server(method, { uri: params.uri });
      case "ui/open-link":
        return this.asking(() => this.host.openLink(String(params.url)));
      case "ui/message":
        return this.asking(() => this.host.say(textOf(params.content)));
      case "ui/request-display-mode":
        return { mode: "inline" };
      default:
        throw new RpcError(UNKNOWN_METHOD, `apps may not use ${method} here`);
    }
  }

  /** The person is asked one thing at a time; what an app wants meanwhile is refused. */
  async asking(question) {
    if (this.isAsking) return { isError: true };
    this.isAsking = true;
    try {
      return (await question()) ? {} : { isError: true };
    } finally {
      this.isAsking = false;
    }
  }
}

function textOf(content) {
  const blocks = Array.isArray(content) ? content : [content];
  const texts = blocks.filter((block) => block?.type === "text" && typeof block.text === "string");
  return texts.map((block) => block.text).join("\n").trim();
}
