/**
 * What hooks are given and what they may answer. Import types from it in a hook:
 *
 *     import type { MessageHook } from "./hooks";
 *
 * A hook is an exported function, async or not. `undefined` means: no objection, nothing changed.
 */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: any };

/**
 * A JSON-RPC message: a request has `method` and `params`, a notification has no `id`, an answer has `result` or
 * `error`. `jsonrpc`, `id` and `method` stay as they are, whatever a hook makes of them.
 */
export interface Message {
  jsonrpc: "2.0";
  id?: number | string;
  method?: string;
  params?: JsonObject;
  result?: JsonObject;
  error?: { code: number; message: string; data?: Json };
}

/** Hooks of an MCP server: every request, notification and answer, in both directions. */
export interface MessagePayload {
  accept: boolean;
  mutated: boolean;
  message: Message;
  reason: string;
  context: {
    server: string;
    session: string;
    account: string;
    client: { name?: string; version?: string; [key: string]: any };
  };
}

/** What is left out stays as it was. `message` counts only with `mutated: true`. */
export interface MessageAnswer {
  accept?: boolean;
  mutated?: boolean;
  message?: Partial<Message>;
  reason?: string;
}

type Maybe<T> = T | undefined | void;
type Answer<T> = Maybe<T> | Promise<Maybe<T>>;

export type MessageHook = (payload: MessagePayload) => Answer<MessageAnswer>;

/** Any event but messages may be refused: an answer with `accept: false` ends what was going on. */
export interface Refusal {
  accept?: boolean;
  reason?: string;
}

/**
 * Hook `session`: an MCP client shakes hands, or asks for the first time. The `_meta` of the answer is told to the
 * client.
 */
export interface SessionPayload {
  /** Path and query of the address at which it asks; "" on stdio. */
  url: string;
  sessionId: string;
  account: string;
  client: { name?: string; version?: string; [key: string]: any };
  _meta: JsonObject;
}

export type SessionHook = (payload: SessionPayload) => Answer<Partial<SessionPayload> & Refusal>;

/** Hook `config` of an agent: a turn begins. The agent of the answer is that of the turn. */
export interface ConfigPayload {
  /** The agent's keys as in `nanobot.yaml`. Changes of `output` and `hooks` do not count. */
  agent: JsonObject;
  _meta: JsonObject;
  sessionId: string;
  /** Servers that are there for this turn; the configured ones are not listed, and their names are taken. */
  mcpServers: { [name: string]: { url: string; headers?: { [name: string]: string } } };
}

export type ConfigHook = (payload: ConfigPayload) => Answer<Partial<ConfigPayload> & Refusal>;

export type Item =
  | { type: "text"; id?: string; text: string }
  | { type: "tool"; id?: string; callID?: string; name: string; arguments: string }
  | { type: "tool"; id?: string; callID: string; output: { content: JsonObject[]; isError?: boolean } }
  | { type: "reasoning"; id?: string; summary: { text: string }[] }
  | { type: string; [key: string]: any };

/** What a model is asked. `model`, `agent`, `thread` and `output` cannot be changed. */
export interface ModelRequest {
  model: string;
  agent: string;
  thread: string;
  instructions: string;
  messages: { id?: string; created?: string; role: "user" | "assistant"; items: Item[] }[];
  tools: { name: string; description: string; inputSchema: JsonObject }[];
  toolChoice: string | null;
  temperature: number | null;
  topP: number | null;
  maxTokens: number | null;
  stop: string[];
  reasoning: { effort: string | null; summary: string | null };
  truncation: string | null;
  output: JsonObject | null;
}

export interface ModelResponse {
  id?: string;
  model?: string;
  items: Item[];
  finish?: "stop" | "tool_calls" | "length" | "content_filter" | "refusal";
}

/** Hook `request`: before a model is asked. A `response` in the answer stands for the model's. */
export interface RequestPayload {
  request: ModelRequest;
  response: ModelResponse | null;
}

export type RequestHook = (payload: RequestPayload) => Answer<Partial<RequestPayload> & Refusal>;

/** Hook `response`: after a model has answered, before anybody sees it. `request` is what was sent. */
export interface ResponsePayload {
  request: ModelRequest;
  response: ModelResponse;
}

export type ResponseHook = (payload: ResponsePayload) => Answer<Partial<ResponsePayload> & Refusal>;

/** There is nothing else from outside the language: no files, no network, no timers. */
declare global {
  /** Written to nanobot's log. */
  var console: { [level in "log" | "debug" | "info" | "warn" | "error"]: (...values: unknown[]) => void };
  /** `hookSettings.env` of the configuration. */
  var process: { readonly env: { readonly [name: string]: string | undefined } };
}
