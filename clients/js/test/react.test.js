/** Hooks, rendered by React into happy-dom. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Window } from "happy-dom";
import { client, status } from "./fakes.js";

const window = new Window({ url: "http://here.test/" });
Object.assign(globalThis, { window, document: window.document, IS_REACT_ACT_ENVIRONMENT: true });
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true });
const { act, createElement: h, StrictMode } = await import("react");
const { createRoot } = await import("react-dom/client");
const { renderToString } = await import("react-dom/server");
const { HerenowProvider, useConnection, useMyPresence, usePresence, usePresences, useTyping } = await import("../build/react.js");
delete globalThis.document; // the client under test is not on this page
test.after(() => window.happyDOM.close());

async function render(t, component) {
  const given = await client(t);
  globalThis.document = window.document;
  const box = window.document.createElement("div");
  const root = createRoot(box);
  const draw = (client, component) => act(() => root.render(h(StrictMode, null, h(HerenowProvider, { client }, h(component)))));
  await draw(given.here, component);
  t.after(async () => {
    await act(() => root.unmount());
    delete globalThis.document;
  });
  const say = (frame) => act(() => given.socket().say(frame));
  return { ...given, box, root, draw, say };
}

test("usePresence() renders changes, and unsubscribes when it is unmounted", async (t) => {
  let renders = 0;
  const { box, pass, say, socket, root } = await render(t, () => (renders++, h("p", null, usePresence("bo").status)));
  assert.equal(box.textContent, "unknown");
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().of("presence.subscribe").map((frame) => frame.target_user_ids), [["bo"]]);
  await say({ type: "presence.status", ...status("bo", "away") });
  assert.equal(box.textContent, "away");
  const before = renders;
  await say({ type: "presence.status", ...status("chen", "away") });
  await say({ type: "presence.status", ...status("bo", "away", Date.now() + 5) });
  assert.equal(renders, before);
  await act(() => root.render(null));
  await pass(1_000);
  await pass(10);
  assert.equal(socket().of("presence.unsubscribe").length, 1);
});

test("usePresences() keeps the order, although each render passes a new array", async (t) => {
  const { box, pass, say } = await render(t, () => h("p", null, usePresences(["bo", "chen"]).map((each) => `${each.user}:${each.status}`).join(" ")));
  await pass(10);
  await pass(10);
  await say({ type: "presence.statuses", statuses: [status("chen", "busy"), status("bo", "online")] });
  assert.equal(box.textContent, "bo:online chen:busy");
});

test("useMyPresence() returns the user's own presence and its setters", async (t) => {
  let mine;
  const { box, say, socket } = await render(t, () => ((mine = useMyPresence()), h("p", null, mine.me?.mode ?? "?")));
  assert.equal(box.textContent, "?");
  await say({ type: "presence.self", status: "busy", mode: "busy", until: null, custom_status: null, devices: [] });
  assert.equal(box.textContent, "busy");
  void mine.auto();
  assert.equal(socket().of("presence.set")[0].mode, "auto");
});

test("useTyping() lists the users who type in a room, and sends typing", async (t) => {
  let room;
  const { box, say, socket, pass } = await render(t, () => ((room = useTyping({ room: "r1" })), h("p", null, room.typing.join(","))));
  await pass(10);
  await pass(10);
  assert.equal(socket().of("room.open").length, 1);
  await say({ type: "presence.typing", user_id: "bo", room: "r1", expires_in: 6 });
  await say({ type: "presence.typing", user_id: "chen", room: "r1", expires_in: 6 });
  assert.equal(box.textContent, "bo,chen");
  await act(() => pass(6_000));
  assert.equal(box.textContent, "");
  room.type();
  assert.deepEqual(socket().of("presence.typing"), [{ type: "presence.typing", room: "r1" }]);
});

test("useConnection() returns the connection phase", async (t) => {
  const { box, socket } = await render(t, () => h("p", null, useConnection().phase));
  assert.equal(box.textContent, "connected");
  await act(() => socket().end(1006));
  assert.equal(box.textContent, "reconnecting");
});

test("server-side rendering shows every user as unknown", async (t) => {
  const { here } = await client(t);
  const Dot = () => h("b", null, usePresence("bo").status + useConnection().phase);
  assert.equal(renderToString(h(HerenowProvider, { client: here }, h(Dot))), "<b>unknownconnecting</b>");
});

test("a hook without a provider throws an error that names HerenowProvider", () => {
  assert.throws(() => renderToString(h(() => usePresence("bo").status)), /HerenowProvider/);
});
