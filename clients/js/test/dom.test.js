/** On a page: activity, dots, storage. Uses happy-dom instead of a browser. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Window } from "happy-dom";
import { client, settled, status, token } from "./fakes.js";

const NAMES = ["document", "window", "addEventListener", "HTMLElement", "customElements", "CSSStyleSheet", "requestAnimationFrame", "localStorage"];

/** Make the window's properties global for the duration of a test. */
function page(t, { without = [] } = {}) {
  const window = new Window({ url: "http://here.test/" });
  const before = Object.fromEntries(NAMES.map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
  const frames = [];
  const given = {
    ...Object.fromEntries(NAMES.map((name) => [name, window[name]])),
    window,
    addEventListener: window.addEventListener.bind(window),
    requestAnimationFrame: (paint) => frames.push(paint),
  };
  for (const name of NAMES) {
    if (without.includes(name)) Object.defineProperty(globalThis, name, { get() { throw new Error(`${name} is forbidden`); }, configurable: true });
    else Object.defineProperty(globalThis, name, { value: given[name], configurable: true, writable: true });
  }
  t.after(async () => {
    for (const name of NAMES) before[name] ? Object.defineProperty(globalThis, name, before[name]) : delete globalThis[name];
    await window.happyDOM.close();
  });
  const paint = () => frames.splice(0).forEach((each) => each());
  return { window, document: window.document, frames, paint };
}

function hide(window, hidden) {
  Object.defineProperty(window.document, "hidden", { value: hidden, configurable: true });
  window.document.dispatchEvent(new window.Event("visibilitychange"));
}

test("key and pointer events count as activity", async (t) => {
  const { window } = page(t);
  const { socket, pass } = await client(t);
  for (let n = 0; n < 50; n++) window.dispatchEvent(new window.Event(n % 2 ? "keydown" : "pointermove"));
  await pass(30_000);
  assert.deepEqual(socket().sent, [{ type: "presence.heartbeat", activity_type: "active" }]);
});

test("the client ignores page events with activity: false", async (t) => {
  const { window } = page(t);
  const { socket, pass } = await client(t, { activity: false });
  window.dispatchEvent(new window.Event("keydown"));
  await pass(30_000);
  assert.deepEqual(socket().sent, [{ type: "presence.heartbeat" }]);
});

test("a page that becomes visible reports activity and checks the connection", async (t) => {
  const { window } = page(t);
  const { here, socket, pass } = await client(t);
  here.idle();
  hide(window, true);
  hide(window, false);
  assert.deepEqual(socket().sent.slice(1), [{ type: "presence.active" }, { type: "presence.heartbeat", id: "beat" }]);
  await pass(10_000);
  assert.equal(here.state.phase, "reconnecting");
});

test("a page that becomes visible shortens the back-off, but not a delay that the server asked for", async (t) => {
  const { window } = page(t);
  t.mock.method(Math, "random", () => 0.5);
  const { here, socket, pass, Sockets } = await client(t, { deviceId: "d" });
  socket().end(4429);
  assert.equal(here.state.retryIn, 15_000);
  hide(window, false);
  await pass(1_000);
  assert.equal(Sockets.all.length, 2);
  socket().end(1012, "retry_after_ms=60000");
  hide(window, false);
  await pass(59_000);
  assert.equal(Sockets.all.length, 2);
  await pass(1_000);
  assert.equal(Sockets.all.length, 3);
});

test("a page that becomes visible requests a token at once if the last request failed", async (t) => {
  const { window } = page(t);
  let fails = true;
  const source = () => {
    if (fails) throw new Error("away");
    return token();
  };
  const { here, pass, Sockets } = await client(t, { token: source, deviceId: "d" }, { welcome: false });
  for (let n = 0; n < 5; n++) await pass(here.state.retryIn);
  assert.equal(here.state.retryIn, 30_000);
  fails = false;
  hide(window, false);
  await pass(0);
  assert.equal(Sockets.all.length, 1);
});

test("the client of a hidden page unsubscribes, and subscribes again when the page is restored from the cache", async (t) => {
  const { window } = page(t);
  const { here, socket, pass } = await client(t);
  here.watch(["bo"], () => {});
  await pass(10);
  await pass(10);
  window.dispatchEvent(new window.Event("pagehide"));
  await pass(10);
  assert.equal(socket().of("presence.unsubscribe").length, 1);
  window.dispatchEvent(new window.Event("pageshow"));
  await pass(10);
  assert.deepEqual(socket().of("presence.subscribe").map((frame) => frame.target_user_ids), [["bo"], ["bo"]]);
});

test("a closed client ignores page events", async (t) => {
  const { window } = page(t);
  const { here, socket } = await client(t);
  here.close();
  window.dispatchEvent(new window.Event("keydown"));
  hide(window, false);
  await settled();
  assert.deepEqual(socket().sent, []);
});

test("the device id stays the same at the next visit", async (t) => {
  page(t);
  const device = (socket) => new URL(socket.url).searchParams.get("device_id");
  const first = await client(t);
  const second = new first.here.constructor("ws://here.test/ws/presence", { token: () => token(), shareTabs: false, WebSocket: first.Sockets });
  t.after(() => second.close());
  await settled();
  const [one, two] = first.Sockets.all.map(device);
  assert.equal(one, two);
  assert.ok(one.length > 5);
});

test("without localStorage the client makes a new device id", async (t) => {
  page(t, { without: ["localStorage"] });
  const { here, socket } = await client(t);
  assert.ok(new URL(socket().url).searchParams.get("device_id").length > 5);
  assert.equal(here.state.phase, "connected");
});

test("the client accepts a URL relative to the page", async (t) => {
  page(t);
  const { here, Sockets } = await client(t);
  Object.defineProperty(globalThis, "location", { value: { href: "https://here.test/a/b" }, configurable: true });
  t.after(() => delete globalThis.location);
  const relative = new here.constructor("/ws/presence", { token: () => token(), shareTabs: false, deviceId: "d", WebSocket: Sockets });
  t.after(() => relative.close());
  await settled();
  assert.equal(Sockets.last.url, "wss://here.test/ws/presence?device_id=d&platform=web");
});

test("status dots show the status, its label and staleness, and are all painted in one frame", async (t) => {
  const { document, frames, paint } = page(t);
  const { defineGreenDot } = await import("../build/green-dot.js");
  const { here, socket, pass } = await client(t);
  document.body.innerHTML = '<green-dot id="early" user="bo"></green-dot>';
  defineGreenDot(here);
  const bo = document.getElementById("early");
  const others = Array.from({ length: 5_000 }, (_, n) => Object.assign(document.createElement("green-dot")));
  others.forEach((dot, n) => dot.setAttribute("user", n ? `user-${n}` : "<img onerror=alert(1)>".replaceAll(" ", "")));
  document.body.append(...others);
  const mark = bo.shadowRoot.querySelector("i");
  paint();
  assert.equal(mark.className, "unknown");
  assert.equal(mark.getAttribute("aria-label"), "status unknown");
  await pass(10);
  await pass(10);
  const named = socket().of("presence.subscribe").flatMap((frame) => frame.target_user_ids);
  assert.equal(named.length, 5_001);
  assert.equal(new Set(named).size, 5_001);
  socket().say({ type: "presence.statuses", statuses: named.map((user) => status(user, "busy")) });
  assert.equal(frames.length, 1);
  paint();
  assert.equal(mark.className, "busy");
  assert.equal(mark.getAttribute("aria-label"), "do not disturb");
  assert.equal(mark.getAttribute("role"), "img");
  assert.equal(bo.getAttribute("status"), "busy");
  assert.equal(others[4_999].getAttribute("status"), "busy");
  assert.equal(others[0].shadowRoot.querySelectorAll("img").length, 0);
  // Without a connection for a while: stale, not offline.
  t.mock.method(Math, "random", () => 0.999);
  socket().end(1006);
  await pass(2_000);
  paint();
  assert.equal(mark.className, "busy stale");
  assert.equal(mark.getAttribute("aria-label"), "do not disturb (last known)");
  assert.ok(bo.hasAttribute("stale"));
  // Another user in the same dot, then none.
  bo.setAttribute("user", "chen");
  paint();
  assert.equal(mark.className, "unknown");
  others.forEach((dot) => dot.remove());
  bo.removeAttribute("user");
  await pass(1_000);
  socket().welcome();
  await pass(10);
  assert.deepEqual(socket().of("presence.subscribe"), []);
});

test("a second status-dot element can have another name, other labels and another client", async (t) => {
  const { document, paint } = page(t);
  const { defineGreenDot } = await import("../build/green-dot.js?second");
  const { here, socket, pass } = await client(t);
  defineGreenDot(here, { name: "gruener-punkt", words: { online: "da" } });
  document.body.innerHTML = '<gruener-punkt user="bo"></gruener-punkt>';
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.status", ...status("bo") });
  paint();
  const mark = document.querySelector("gruener-punkt").shadowRoot.querySelector("i");
  assert.equal(mark.title, "da");
});

test("a status dot shows a status from the HTML as stale until a status arrives", async (t) => {
  const { document, paint } = page(t);
  const { defineGreenDot } = await import("../build/green-dot.js?third");
  const { here, socket, pass } = await client(t);
  document.body.innerHTML = '<green-dot user="bo" status="busy"></green-dot><green-dot user="chen" status="toString"></green-dot>';
  const [bo, chen] = document.querySelectorAll("green-dot");
  const look = (dot) => dot.shadowRoot.querySelector("i").className;
  defineGreenDot(here);
  paint();
  assert.deepEqual([look(bo), look(chen)], ["busy stale", "unknown"]);
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.status", ...status("bo") });
  paint();
  assert.equal(look(bo), "online");
  // The rendered status belonged to another user.
  bo.setAttribute("user", "dara");
  paint();
  assert.equal(look(bo), "unknown");
});
