/** Several tabs: clients in one process that share locks and a channel. Timers are mocked, messages are real. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Herenow } from "../build/index.js";
import { FakeLocks, settled, sockets, status, token, URL_ } from "./fakes.js";

function browser(t, { locks = new FakeLocks() } = {}) {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  t.after(() => (before ? Object.defineProperty(globalThis, "navigator", before) : delete globalThis.navigator));
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
  const Sockets = sockets();
  const opened = [];
  const tab = async (options = {}) => {
    const here = new Herenow(URL_, { token: () => token(), deviceId: "browser", WebSocket: Sockets, ...options });
    opened.push(here);
    await pass(0);
    return here;
  };
  // A message between tabs takes an iteration of the real event loop, whatever the mocked time is.
  const pass = async (ms) => {
    t.mock.timers.tick(ms);
    for (let turn = 0; turn < 6; turn++) await new Promise((resolve) => setImmediate(resolve)), await settled();
  };
  t.after(() => opened.forEach((here) => here.close()));
  return { Sockets, tab, pass };
}

test("two tabs share one socket, and each sees the users that it watches", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two] = [await tab(), await tab()];
  Sockets.last.welcome();
  await pass(20);
  assert.equal(Sockets.all.length, 1);
  assert.equal(two.state.phase, "connected");
  const seen = [];
  one.watch(["bo"], (now) => seen.push(["one", now.user, now.status]));
  two.watch(["bo", "chen"], (now) => seen.push(["two", now.user, now.status]));
  await pass(20);
  await pass(20);
  const asked = Sockets.last.of("presence.subscribe").flatMap((frame) => frame.target_user_ids);
  assert.deepEqual(asked.sort(), ["bo", "chen"]);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo"), status("chen", "away")] });
  await pass(0);
  assert.deepEqual(seen.sort(), [["one", "bo", "online"], ["two", "bo", "online"], ["two", "chen", "away"]]);
});

test("tabs that open while token requests fail share one socket afterwards", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  let fails = true;
  const source = () => (fails ? "<html>" : token());
  const [one, two] = [await tab({ token: source }), await tab({ token: source })];
  assert.equal(one.state.reason, "token_failed");
  fails = false;
  await pass(1_000);
  await pass(20);
  Sockets.last.welcome();
  await pass(20);
  assert.equal(Sockets.all.length, 1);
  assert.deepEqual([one.state.phase, two.state.phase], ["connected", "connected"]);
});

test("a sign-out at the application signs out all tabs", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  let signedIn = true;
  const source = () => (signedIn ? token({ ttl: 100 }) : null);
  const [one, two] = [await tab({ token: source }), await tab({ token: source })];
  Sockets.last.welcome();
  await pass(20);
  signedIn = false;
  await pass(80_000);
  await pass(20);
  assert.deepEqual([one.state.phase, two.state.phase], ["signed_out", "signed_out"]);
  signedIn = true;
  two.connect();
  await pass(20);
  Sockets.last.welcome();
  await pass(20);
  assert.equal(Sockets.all.length, 2);
  assert.deepEqual([one.state.phase, two.state.phase], ["connected", "connected"]);
});

test("a new tab gets the statuses that other tabs already have", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const one = await tab();
  Sockets.last.welcome();
  Sockets.last.say({ type: "presence.self", status: "online", mode: "auto", until: null, custom_status: null, devices: [] });
  one.watch(["bo", "eve"], () => {});
  await pass(20);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo", "busy")], id: "w1" });
  Sockets.last.say({ type: "presence.subscribe.denied", denied: [{ target_user_id: "eve", reason: "not_mutual_followers" }], id: "w1" });
  const two = await tab();
  const seen = [];
  two.watch(["bo", "eve"], (now) => seen.push([now.user, now.status]));
  await pass(20);
  await pass(20);
  assert.deepEqual(seen, [["bo", "busy"], ["eve", "offline"]]);
  assert.equal(two.me.get().mode, "auto");
  assert.equal(Sockets.last.of("presence.subscribe").length, 1);
});

test("a tab without a socket can set a mode and send typing", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  await tab();
  const two = await tab();
  Sockets.last.welcome();
  await pass(20);
  const chosen = two.me.set({ mode: "busy" });
  two.typing({ to: "bo" });
  await pass(0);
  const [set] = Sockets.last.of("presence.set");
  assert.equal(Sockets.last.of("presence.typing").length, 1);
  Sockets.last.say({ type: "presence.error", code: "unavailable", message: "…", id: set.id });
  await pass(0);
  await assert.rejects(chosen, { code: "unavailable" });
});

test("when the tab with the socket closes, another tab takes over and no user looks stale", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two, three] = [await tab(), await tab(), await tab()];
  Sockets.last.welcome();
  await pass(20);
  const seen = [];
  for (const here of [two, three]) here.watch(["bo"], (now) => seen.push([now.status, now.stale]));
  await pass(20);
  await pass(20);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo")], id: "w1" });
  await pass(0);
  one.close();
  await pass(0);
  assert.equal(Sockets.all.length, 2);
  assert.equal(new URL(Sockets.last.url).searchParams.get("device_id"), "browser");
  Sockets.last.welcome();
  await pass(20);
  await pass(20);
  assert.deepEqual(Sockets.last.of("presence.subscribe").flatMap((frame) => frame.target_user_ids), ["bo"]);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo")], id: "w2" });
  await pass(5_000);
  assert.deepEqual(seen, [["online", false], ["online", false]]);
  assert.equal(three.state.phase, "connected");
  Sockets.last.say({ type: "presence.status", ...status("bo", "away") });
  await pass(0);
  assert.equal(seen.length, 4);
});

test("a tab that opens while disconnected shows known statuses as stale, and accepts the next status", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const one = await tab();
  Sockets.last.welcome();
  one.watch(["bo"], () => {});
  await pass(20);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo", "online", Date.now() + 5_000)], id: "w1" });
  Sockets.last.end(4429); // back in half a minute or so
  const two = await tab();
  const seen = [];
  two.watch(["bo"], (now) => seen.push([now.status, now.stale]));
  await pass(20);
  assert.equal(two.state.phase, "reconnecting");
  assert.deepEqual(seen, [["online", true]]);
  await pass(30_000);
  Sockets.last.welcome();
  await pass(20);
  // The clock of the next node is behind the first one's.
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo", "away", Date.now() - 60_000)], id: "w2" });
  await pass(0);
  assert.deepEqual(seen, [["online", true], ["away", false]]);
});

test("a new tab does not get a status that arrived after the last watcher had stopped", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const one = await tab();
  Sockets.last.welcome();
  const stop = one.watch(["bo"], () => {});
  await pass(20);
  stop();
  await pass(1_020);
  Sockets.last.say({ type: "presence.statuses", statuses: [status("bo")], id: "w1" });
  const two = await tab();
  two.watch(["bo"], (now) => assert.fail(`shown as ${now.status}`));
  await pass(20);
  assert.equal(Sockets.last.of("presence.subscribe").length, 2);
});

test("set() during the close of the tab with the socket is sent by the next tab", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two] = [await tab(), await tab()];
  Sockets.last.welcome();
  await pass(20);
  const chosen = two.me.set({ mode: "busy" });
  one.close(); // before it could take it
  await pass(0);
  Sockets.last.welcome();
  await pass(20);
  const [set] = Sockets.last.of("presence.set");
  assert.equal(set.mode, "busy");
  Sockets.last.say({ type: "presence.ok", id: set.id });
  await chosen;
});

test("an unanswered set() reveals that the tab with the socket is asleep", async (t) => {
  const locks = new FakeLocks();
  const { Sockets, tab, pass } = browser(t, { locks });
  const one = await tab();
  Sockets.last.welcome();
  const two = await tab();
  await pass(20);
  assert.equal(two.state.phase, "connected");
  const name = `herenow ${URL_}?device_id=browser&platform=web ana`;
  // The lock goes to a holder that sends nothing, like a sleeping tab.
  void locks.request(name, { steal: true }, () => new Promise(() => {})).catch(() => {});
  await pass(0);
  one.close();
  await pass(100);
  const chosen = two.me.set({ mode: "busy" });
  await pass(3_000);
  assert.equal(Sockets.all.length, 2);
  Sockets.last.welcome();
  await pass(20);
  const [set] = Sockets.last.of("presence.set");
  Sockets.last.say({ type: "presence.ok", id: set.id });
  await chosen;
});

test("a tab that steals the lock of the shared socket while it is granted gets the socket", async (t) => {
  const granted = [];
  const rejected = [];
  // An order that browsers allow: both requests of one tab are granted, then the first learns that its lock was stolen.
  const locks = { request: (_name, _how, hold) => new Promise((_, reject) => (granted.push(hold), rejected.push(reject))) };
  const { Sockets, tab, pass } = browser(t, { locks });
  const here = await tab();
  await pass(20);
  await pass(3_000);
  assert.equal(granted.length, 2);
  void granted[0]();
  void granted[1]();
  rejected[0](Object.assign(new Error("stolen"), { name: "AbortError" }));
  await pass(20);
  assert.equal(Sockets.all.length, 1);
  Sockets.last.welcome();
  await pass(20);
  assert.equal(here.state.phase, "connected");
  assert.equal(Sockets.last.readyState, 1);
});

test("when another user signs in at one tab, the other tabs stay closed", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  let sub = "ana";
  const [one, two] = [await tab(), await tab({ token: () => token({ sub }) })];
  Sockets.last.welcome();
  await pass(20);
  two.bye();
  await pass(0);
  Sockets.last.end(1000, "signed_out");
  await pass(0);
  sub = "bo";
  two.connect();
  await pass(20);
  assert.equal(Sockets.all.length, 2);
  Sockets.last.welcome();
  await pass(20);
  assert.deepEqual([one.state.phase, two.state.phase], ["closed", "connected"]);
});

test("a tab that closes ends its subscriptions", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two] = [await tab(), await tab()];
  Sockets.last.welcome();
  one.watch(["bo"], () => {});
  two.watch(["chen"], () => {});
  await pass(20);
  await pass(20);
  two.close();
  await pass(20);
  await pass(20);
  assert.deepEqual(Sockets.last.of("presence.unsubscribe"), [{ type: "presence.unsubscribe", target_user_ids: ["chen"] }]);
});

test("a tab takes over the shared socket from a tab that does not answer", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const asleep = new FakeLocks();
  // The lock is held by a tab that sends nothing: the phone has put it to sleep.
  Object.defineProperty(globalThis, "navigator", { value: { locks: asleep }, configurable: true });
  const url = `${URL_}?device_id=browser&platform=web`;
  const sleeper = asleep.request(`herenow ${url} ana`, {}, () => new Promise(() => {}));
  let robbed = false;
  sleeper.catch(() => (robbed = true));
  const two = await tab();
  two.watch(["bo"], () => {});
  await pass(100);
  assert.equal(Sockets.all.length, 0);
  await pass(3_000);
  assert.equal(robbed, true);
  assert.equal(Sockets.all.length, 1);
  Sockets.last.welcome();
  await pass(20);
  assert.equal(two.state.phase, "connected");
  assert.deepEqual(Sockets.last.of("presence.subscribe").flatMap((frame) => frame.target_user_ids), ["bo"]);
});

test("a tab whose shared socket was taken over closes it and keeps its watchers", async (t) => {
  const locks = new FakeLocks();
  const { Sockets, tab, pass } = browser(t, { locks });
  const one = await tab();
  Sockets.last.welcome();
  const seen = [];
  one.watch(["bo"], (now) => seen.push(now.status));
  await pass(20);
  let release;
  void locks.request(`herenow ${URL_}?device_id=browser&platform=web ana`, { steal: true }, () => new Promise((resolve) => (release = resolve)));
  await pass(0);
  assert.equal(Sockets.open.length, 0);
  release();
  await pass(0);
  assert.equal(Sockets.all.length, 2);
  Sockets.last.welcome();
  await pass(20);
  Sockets.last.say({ type: "presence.status", ...status("bo") });
  assert.deepEqual(seen, ["online"]);
});

test("tabs of two users do not share a socket", async (t) => {
  const { Sockets, tab } = browser(t);
  await tab({ token: () => token({ sub: "ana" }) });
  await tab({ token: () => token({ sub: "bo" }) });
  assert.equal(Sockets.all.length, 2);
});

test("bye() in one tab closes all tabs, and connect() opens all of them again", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two] = [await tab(), await tab()];
  Sockets.last.welcome();
  await pass(20);
  two.bye();
  await pass(0);
  assert.equal(Sockets.last.of("presence.bye").length, 1);
  Sockets.last.end(1000, "signed out");
  await pass(0);
  assert.deepEqual([one.state.phase, two.state.phase], ["closed", "closed"]);
  two.connect();
  await pass(0);
  Sockets.last.welcome();
  await pass(20);
  assert.deepEqual([one.state.phase, two.state.phase], ["connected", "connected"]);
});

for (const [name, locks] of [
  ["there are no locks", undefined],
  ["locks are refused", { request: () => Promise.reject(new Error("SecurityError")) }],
]) {
  test(`each tab has its own socket in a browser where ${name}`, async (t) => {
    const { Sockets, tab, pass } = browser(t, { locks: locks ?? null });
    const [one, two] = [await tab(), await tab()];
    await pass(20);
    assert.equal(Sockets.all.length, 2);
    for (const socket of Sockets.all) socket.welcome();
    assert.deepEqual([one.state.phase, two.state.phase], ["connected", "connected"]);
  });
}

test("each tab has its own socket in a browser where BroadcastChannel is forbidden", async (t) => {
  const { Sockets, tab } = browser(t);
  const Channel = globalThis.BroadcastChannel;
  globalThis.BroadcastChannel = class {
    constructor() {
      throw new DOMException("The operation is insecure.", "SecurityError");
    }
  };
  t.after(() => (globalThis.BroadcastChannel = Channel));
  await tab();
  await tab();
  assert.equal(Sockets.all.length, 2);
});

test("the subscriptions of a silent tab end after some minutes", async (t) => {
  const { Sockets, tab, pass } = browser(t);
  const [one, two] = [await tab(), await tab()];
  Sockets.last.welcome();
  one.watch(["bo"], () => {});
  await pass(20);
  await pass(20);
  // A crashed tab sends nothing any more; here it never existed.
  const channel = new BroadcastChannel(`herenow ${URL_}?device_id=browser&platform=web ana`);
  t.after(() => channel.close());
  channel.postMessage({ tab: "crashed", wants: { users: ["ghost"], rooms: [], contacts: false } });
  await pass(20);
  await pass(20);
  assert.deepEqual(Sockets.last.of("presence.subscribe").at(-1).target_user_ids, ["ghost"]);
  for (let turn = 0; turn < 16; turn++) {
    Sockets.last.say({ type: "presence.ok" });
    await pass(20_000);
  }
  await pass(20);
  assert.deepEqual(Sockets.last.of("presence.unsubscribe").at(-1).target_user_ids, ["ghost"]);
  assert.equal(two.state.phase, "connected");
});
