/** Fakes: sockets without a network, tokens, and locks for several "tabs" in one process. */
import { Herenow } from "../build/index.js";

// The monotonic clock follows the mocked Date.
performance.now = () => Date.now();

export const URL_ = "ws://here.test/ws/presence";

/** Wait until pending promises are resolved. Uses setImmediate, because timers may be mocked. */
export const settled = async () => {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
};

export function token({ sub = "ana", ttl = 3600, n = 0 } = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "HS256" })}.${part({ sub, exp: Date.now() / 1000 + ttl, n })}.x`;
}

/** A fake WebSocket class that keeps its instances. */
export function sockets() {
  return class FakeSocket {
    static all = [];
    static get last() {
      return this.all.at(-1);
    }
    static get open() {
      return this.all.filter((socket) => socket.readyState === 1);
    }
    readyState = 0;
    sent = [];
    onmessage = null;
    onclose = null;
    onerror = null;
    constructor(url, protocols) {
      Object.assign(this, { url, protocols });
      this.constructor.all.push(this);
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close() {
      this.readyState = 3;
    }
    // The server's side
    welcome(more = {}) {
      this.readyState = 1;
      this.say({
        type: "presence.welcome",
        user_id: "ana",
        device_id: "d",
        session_id: "s",
        beat_every: 30,
        idle_after: 300,
        server_time: Date.now(),
        limits: { subscriptions: 500, frame: 65536, bulk: 1000 },
        ...more,
      });
    }
    say(frame) {
      this.onmessage?.({ data: JSON.stringify(frame) });
    }
    end(code, reason = "") {
      this.readyState = 3;
      this.onclose?.({ code, reason });
    }
    of(type) {
      return this.sent.filter((frame) => frame.type === type);
    }
  };
}

export function status(user, status = "online", as_of = Date.now(), more = {}) {
  return { user_id: user, status, since: 1, last_seen: null, custom_status: null, platforms: ["web"], as_of, ...more };
}

/** A client on a fake socket with mocked timers; connected unless `welcome` is false. */
export async function client(t, options = {}, { welcome = true, now = 1_700_000_000_000 } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now });
  const Sockets = options.WebSocket ?? sockets();
  const states = [];
  const here = new Herenow(URL_, { token: () => token(), shareTabs: false, ...options, WebSocket: Sockets });
  here.onState((state) => states.push(state));
  t.after(() => here.close());
  await settled();
  if (welcome) Sockets.last.welcome();
  const pass = async (ms) => {
    t.mock.timers.tick(ms);
    await settled();
  };
  return { here, Sockets, states, pass, socket: () => Sockets.last };
}

/** The part of `navigator.locks` that is used: queues, abort, steal. */
export class FakeLocks {
  #queues = new Map();
  request(name, options, callback) {
    return new Promise((resolve, reject) => {
      const queue = this.#queues.get(name) ?? [];
      this.#queues.set(name, queue);
      const entry = { reject, running: false };
      entry.run = () => {
        entry.running = true;
        Promise.resolve()
          .then(() => callback({ name }))
          .then(resolve, reject)
          .finally(() => this.#leave(queue, entry));
      };
      options.signal?.addEventListener("abort", () => {
        if (entry.running) return;
        queue.splice(queue.indexOf(entry), 1);
        reject(Object.assign(new Error("aborted"), { name: "AbortError" }));
      });
      if (options.steal) {
        const holder = queue[0]?.running ? queue.shift() : undefined;
        queue.unshift(entry);
        holder?.reject(Object.assign(new Error("stolen"), { name: "AbortError" }));
      } else queue.push(entry);
      if (queue[0] === entry) entry.run();
    });
  }
  #leave(queue, entry) {
    if (!queue.includes(entry)) return;
    queue.splice(queue.indexOf(entry), 1);
    if (queue[0] && !queue[0].running) queue[0].run();
  }
}
