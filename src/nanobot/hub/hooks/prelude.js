// What a script finds in its engine: modules, a console, and the configured environment. Nothing else.
(() => {
  "use strict";
  const functions = new Map();
  const links = new Map();
  const loaded = new Map();
  const lines = [];
  const { parse, stringify } = JSON;

  const text = (value) => {
    if (typeof value === "string") return value;
    try {
      return stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  };
  const say = (...values) => {
    if (lines.length < 100) lines.push(values.map(text).join(" ").slice(0, 1000));
  };
  globalThis.console = { log: say, debug: say, info: say, warn: say, error: say };

  const load = (id) => {
    const known = loaded.get(id);
    if (known) return known.exports;
    const module = { exports: {} };
    loaded.set(id, module);
    const require = (written) => {
      const target = parse(links.get(id))[written];
      if (target === undefined) throw new Error(`cannot import ${written}: only ./files can be imported`);
      return load(target);
    };
    try {
      functions.get(id)(module.exports, module, require);
    } catch (error) {
      loaded.delete(id);
      throw error;
    }
    return module.exports;
  };

  const find = (exports, name) => {
    if (name) return exports[name];
    if (typeof exports === "function") return exports;
    return exports.default;
  };

  let outcome;
  const fail = (error) => {
    outcome = { kind: "failed", text: String(error?.name ?? "Error"), detail: text(error?.stack || String(error)) };
    if (error?.message) outcome.detail = `${error.message}\n${outcome.detail}`;
  };

  return {
    environment(json) {
      globalThis.process = Object.freeze({ env: Object.freeze(parse(json)) });
    },
    define(id, imports, run) {
      functions.set(id, run);
      links.set(id, imports);
    },
    load,
    start(id, name, payload) {
      outcome = undefined;
      lines.length = 0;
      try {
        const run = find(load(id), name);
        if (typeof run !== "function") {
          outcome = { kind: "missing", text: "" };
          return;
        }
        Promise.resolve(run(parse(payload))).then((value) => {
          outcome = { kind: "done", text: value === undefined ? "null" : stringify(value) ?? "null" };
        }).catch(fail);
      } catch (error) {
        fail(error);
      }
    },
    result: () => stringify({ ...(outcome ?? { kind: "waiting", text: "" }), lines }),
  };
})()
