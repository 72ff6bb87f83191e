// The HTTP API as functions. Every failure is an `ApiError` with one sentence for the person.

export class ApiError extends Error {
  /** @param {number} status 0: the server was not reached. @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const listAgents = async () => (await call("GET", "/api/agents")).agents;
export const listThreads = async () => (await call("GET", "/api/threads?limit=100")).threads;
export const createThread = (agent, title) => call("POST", "/api/threads", { agent, title });
export const getThread = (id) => call("GET", `/api/threads/${id}`);
export const deleteThread = (id) => call("DELETE", `/api/threads/${id}`);
export const stopTurn = (id) => call("POST", `/api/threads/${id}/stop`);

/** Hand over a message. The answer `{turn, message}` comes at once; what happens next comes as events. */
export const sendMessage = (id, text, agent) =>
  call("POST", `/api/threads/${id}/messages?wait=false`, { text, agent });

/** The app of a call that was made in a thread: `{id, server, tool, host}`. */
export const openApp = (thread, callId) => call("POST", `/api/threads/${thread}/apps`, { call: callId });

/** What an app asks of its server: `{result}` or `{error: {code, message}}`. */
export const askApp = (id, method, params) =>
  call("POST", `/api/apps/${id}`, { jsonrpc: "2.0", id: 1, method, params });

async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError(0, "nanobot cannot be reached. Is it still running?");
  }
  const text = await response.text();
  const answer = text ? parse(text) : null;
  if (response.ok) return answer;
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname)}`);
  throw new ApiError(response.status, answer?.error?.message ?? `The server answered ${response.status}.`);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
