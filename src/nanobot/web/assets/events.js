// One thread's event stream. The browser reconnects by itself; what it cannot mend is tried again here.

import { getThread } from "./api.js";

const AGAIN_MS = 2000;

/**
 * @typedef {object} Listener
 * @property {(history: any[]) => void} history  all messages there are
 * @property {(message: any) => void} message    news of one message
 * @property {(news: any) => void} progress      how far a tool is
 * @property {(turn: any) => void} started
 * @property {(turn: any) => void} done
 * @property {(news: any) => void} retrying      the provider is asked again
 * @property {() => void} deleted
 * @property {(isConnected: boolean) => void} connection
 */

/**
 * Follow a thread until the returned function is called.
 * @param {string} id @param {Listener} listener
 */
export function followThread(id, listener) {
  let source, timer;
  let isStopped = false;
  /** @type {any[] | null} */
  let history = null;

  const on = (name, handle) =>
    source.addEventListener(name, (event) => {
      if (event.data !== undefined) handle(JSON.parse(event.data));
    });

  function connect() {
    source = new EventSource(`/api/events/${id}`);
    source.addEventListener("open", () => listener.connection(true));
    source.addEventListener("error", (event) => {
      if (/** @type {any} */ (event).data !== undefined) return; // an event of the stream that is named so
      listener.connection(false);
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(again, AGAIN_MS);
    });
    on("history-start", () => (history = []));
    on("history-end", () => {
      listener.history(history ?? []);
      history = null;
    });
    on("message", (message) => (history ? history.push(message) : listener.message(message)));
    on("notifications/progress", listener.progress);
    on("chat-in-progress", listener.started);
    on("chat-done", listener.done);
    on("chat-retry", listener.retrying);
    on("deleted", gone);
  }

  /** The server refused the stream: the thread is gone, or it is not itself at the moment. */
  async function again() {
    try {
      await getThread(id);
    } catch (error) {
      if (error.status === 404 && !isStopped) return gone();
    }
    if (!isStopped) connect();
  }

  function gone() {
    stop();
    listener.deleted();
  }

  function stop() {
    isStopped = true;
    clearTimeout(timer);
    source.close();
  }

  connect();
  return stop;
}
