/** The public client: watching, setting the status, typing. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { client, settled, status } from "./fakes.js";

const subscribed = (socket) => socket.of("presence.subscribe").map((frame) => frame.target_user_ids);

test("several watchers share one subscription, which is sent in one frame", async (t) => {
  const { here, socket, pass } = await client(t);
  const seen = [];
  here.watch(["bo", "chen"], (now, before) => seen.push(["first", now.user, now.status, before?.status]));
  here.watch(["bo", 42], (now, before) => seen.push(["second", now.user, now.status, before?.status]));
  await pass(10);
  await pass(10);
  assert.deepEqual(subscribed(socket()), [["bo", "chen", "42"]]);
  socket().say({ type: "presence.statuses", statuses: [status("bo"), status("42", "away")], id: "w1" });
  socket().say({ type: "presence.status", ...status("bo", "busy") });
  assert.deepEqual(seen, [
    ["first", "bo", "online", undefined],
    ["second", "bo", "online", undefined],
    ["second", "42", "away", undefined],
    ["first", "bo", "busy", "online"],
    ["second", "bo", "busy", "online"],
  ]);
  assert.equal(here.get("bo").status, "busy");
  assert.equal(here.get("nobody").status, "unknown");
});

test("a presence has camelCase fields", async (t) => {
  const { here, socket, pass } = await client(t);
  let bo;
  here.watch(["bo"], (now) => (bo = now));
  await pass(10);
  await pass(10);
  const frames = JSON.parse(readFileSync(new URL("../../../spec/vectors/server-frames.json", import.meta.url))).frames;
  socket().say(frames.online);
  assert.deepEqual(bo, {
    user: "bo",
    status: "online",
    since: 1763251200000,
    lastSeen: null,
    custom: { text: "Lunch", emoji: "🍜", expiresAt: 1893456000000 },
    platforms: ["mobile", "web"],
    asOf: 1763251200001,
    stale: false,
  });
  socket().say(frames["stale and paced"]);
  assert.equal(bo.stale, true);
  assert.equal(bo.delivery, "paced");
  socket().say(frames.blurred);
  assert.equal(bo.lastSeenBucket, "within_week");
  for (const frame of Object.values(frames)) socket().say(frame);
  assert.deepEqual(here.me.get().devices, [{ deviceId: "d1", platform: "web", active: true, since: 1763251200000 }]);
});

test("the client unsubscribes one second after the last watcher stopped", async (t) => {
  const { here, socket, pass } = await client(t);
  const one = here.watch(["bo"], () => {});
  const other = here.watch(["bo"], () => {});
  await pass(10);
  await pass(10);
  one();
  one();
  await pass(2_000);
  assert.deepEqual(socket().of("presence.unsubscribe"), []);
  other();
  await pass(900);
  const back = here.watch(["bo"], () => {});
  await pass(2_000);
  assert.equal(socket().sent.filter((frame) => frame.type !== "presence.heartbeat").length, 1);
  back();
  await pass(1_000);
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().of("presence.unsubscribe"), [{ type: "presence.unsubscribe", target_user_ids: ["bo"] }]);
  assert.equal(here.get("bo").status, "unknown");
});

test("five thousand subscriptions are sent in few frames, none larger than the frame size limit", async (t) => {
  const { here, socket, pass } = await client(t);
  let painted = 0;
  const users = Array.from({ length: 5_000 }, (_, n) => `user-${n}-${"é".repeat(20)}`);
  const stops = users.map((user) => here.watch([user], () => painted++));
  await pass(10);
  await pass(10);
  const frames = socket().of("presence.subscribe");
  assert.ok(frames.length < 15, `${frames.length} frames`);
  assert.deepEqual(frames.flatMap((frame) => frame.target_user_ids), users);
  for (const frame of frames) assert.ok(Buffer.byteLength(JSON.stringify(frame)) <= 65536);
  socket().say({ type: "presence.statuses", statuses: users.map((user) => status(user)) });
  assert.equal(painted, 5_000);
  for (const stop of stops) stop();
  await pass(1_000);
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().of("presence.unsubscribe").flatMap((frame) => frame.target_user_ids), users);
});

test("a watcher is told which users were denied and which ids are invalid", async (t) => {
  const { here, socket, pass } = await client(t);
  const seen = [];
  here.watch(["eve", "a b", null, "many"], (now) => seen.push([now.user, now.status, now.denied]));
  await pass(10);
  await pass(10);
  assert.deepEqual(subscribed(socket()), [["eve", "many"]]);
  const denied = [
    { target_user_id: "eve", reason: "not_mutual_followers" },
    { target_user_id: "many", reason: "too_many_subscriptions" },
  ];
  socket().say({ type: "presence.subscribe.denied", denied, id: "w1" });
  assert.deepEqual(seen, [
    ["a b", "unknown", "invalid_user_id"],
    ["null", "unknown", "invalid_user_id"],
    ["eve", "offline", "not_mutual_followers"],
    ["many", "unknown", "too_many_subscriptions"],
  ]);
  here.watch(["eve"], () => {});
  await pass(10);
  await pass(10);
  assert.deepEqual(subscribed(socket()).at(-1), ["eve"]);
});

test("the client repeats a failed subscribe after a delay", async (t) => {
  const { here, socket, pass } = await client(t);
  const errors = [];
  here.onError((error) => errors.push(error));
  here.watch(["bo"], () => {});
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.error", code: "unavailable", message: "away", id: socket().sent[0].id });
  await pass(50);
  assert.equal(subscribed(socket()).length, 1);
  await pass(4_000);
  assert.equal(subscribed(socket()).length, 2);
  assert.deepEqual(errors, []);
});

test("users become stale while disconnected, not offline, and are fresh again after the reconnect", async (t) => {
  const { here, socket, pass } = await client(t);
  const seen = [];
  here.watch(["bo"], (now) => seen.push([now.status, now.stale]));
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.statuses", statuses: [status("bo")], id: "w1" });
  t.mock.method(Math, "random", () => 0.999);
  socket().end(1006);
  await pass(1_997);
  assert.deepEqual(seen, [["online", false]]);
  await pass(3);
  assert.deepEqual(seen, [["online", false], ["online", true]]);
  socket().welcome();
  assert.deepEqual(subscribed(socket()), [["bo"]]);
  socket().say({ type: "presence.statuses", statuses: [status("bo")], id: "w2" });
  assert.deepEqual(seen.at(-1), ["online", false]);
});

test("watchers do not notice a quick reconnect", async (t) => {
  const { here, socket, pass } = await client(t);
  let calls = 0;
  here.watch(["bo"], () => calls++);
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.statuses", statuses: [status("bo")], id: "w1" });
  t.mock.method(Math, "random", () => 0.1);
  socket().end(1012, "retry_after_ms=100");
  await pass(300);
  socket().welcome();
  socket().say({ type: "presence.statuses", statuses: [status("bo", "online", Date.now() - 1000)], id: "w2" });
  await pass(5_000);
  assert.equal(calls, 1);
});

test("watchContacts() delivers all contacts", async (t) => {
  const { here, socket, pass } = await client(t);
  const seen = [];
  const stop = here.watchContacts((now) => seen.push(now.user));
  await pass(10);
  await pass(10);
  assert.equal(socket().sent[0].contacts, true);
  socket().say({ type: "presence.statuses", statuses: [status("bo"), status("chen")], id: "w1" });
  socket().say({ type: "presence.status", ...status("dara") });
  assert.deepEqual(seen, ["bo", "chen", "dara"]);
  stop();
  await pass(1_000);
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().sent.at(-1), { type: "presence.unsubscribe", contacts: true });
});

test("set() resolves with the server's answer and rejects with its error", async (t) => {
  const { here, socket } = await client(t);
  const busy = here.me.set({ mode: "busy", text: "In a meeting" });
  const { id, ...frame } = socket().sent[0];
  assert.deepEqual(frame, { type: "presence.set", mode: "busy", custom_status: { text: "In a meeting", emoji: "", expires_at: null } });
  socket().say({ type: "presence.ok", id });
  await busy;
  const wrong = here.me.set({ text: "x".repeat(101) });
  socket().say({ type: "presence.error", code: "text_too_long", message: "At most 100.", id: socket().sent[1].id });
  await assert.rejects(wrong, { name: "HerenowError", code: "text_too_long", message: "At most 100." });
});

test("set() with until 17:00 means the next 17:00 in local time", async (t) => {
  const now = new Date(2026, 5, 10, 16, 30).getTime();
  const { here, socket } = await client(t, {}, { now });
  const until = () => socket().sent.at(-1).until;
  void here.me.set({ mode: "busy", until: "17:00" });
  assert.equal(until(), new Date(2026, 5, 10, 17, 0).getTime());
  void here.me.set({ mode: "busy", until: "9:15" });
  assert.equal(until(), new Date(2026, 5, 11, 9, 15).getTime());
  void here.me.set({ mode: "busy", until: new Date(now + 5) });
  assert.equal(until(), now + 5);
  void here.me.set({ mode: "busy", until: "2030-01-01T00:00:00Z" });
  assert.equal(until(), "2030-01-01T00:00:00Z");
  void here.me.set({ mode: "busy", until: "25:00" });
  assert.equal(until(), "25:00");
  void here.me.auto();
  assert.deepEqual({ ...socket().sent.at(-1), id: 0 }, { type: "presence.set", mode: "auto", id: 0 });
});

test("set() without a connection waits a limited time for one", async (t) => {
  const unhandled = [];
  const listener = (error) => unhandled.push(error);
  process.on("unhandledRejection", listener);
  t.after(() => process.off("unhandledRejection", listener));
  const { here, socket, pass } = await client(t, {}, { welcome: false });
  void here.me.set({ mode: "busy" });
  await pass(10_000);
  const kept = here.me.set({ mode: "away" });
  await pass(2_000);
  socket().welcome();
  assert.deepEqual(socket().of("presence.set").map((frame) => frame.mode), ["away"]);
  socket().say({ type: "presence.ok", id: socket().sent[0].id });
  await kept;
  void here.me.set({ mode: "busy" });
  await pass(10_000);
  await settled();
  assert.deepEqual(unhandled, []);
});

test("set() is sent again, once, on the next connection if the answer is missing", async (t) => {
  const { here, socket, pass } = await client(t);
  const chosen = here.me.set({ mode: "busy" });
  const first = socket();
  assert.equal(first.of("presence.set").length, 1);
  first.end(1006);
  await pass(2_000);
  socket().welcome();
  const again = socket().of("presence.set");
  assert.deepEqual(again, first.of("presence.set"));
  socket().say({ type: "presence.ok", id: again[0].id });
  await chosen;
  socket().end(1006);
  await pass(4_000);
  socket().welcome();
  assert.deepEqual(socket().of("presence.set"), []);
});

test("set() rejects at once when the client is closed", async (t) => {
  const { here, socket } = await client(t);
  const waiting = here.me.set({ mode: "busy" });
  socket().end(4409, "signed_out");
  await assert.rejects(waiting, { code: "closed" });
  await assert.rejects(here.me.set({ mode: "away" }), { code: "closed" });
});

test("the client sends typing at most every four seconds, and its end at once", async (t) => {
  const { here, socket, pass } = await client(t);
  for (let key = 0; key < 10; key++) here.typing({ to: "bo" });
  here.typing({ room: "r1" });
  assert.deepEqual(socket().sent, [{ type: "presence.typing", to: "bo" }, { type: "presence.typing", room: "r1" }]);
  await pass(4_000);
  here.typing({ to: "bo" });
  here.typing({ to: "bo", typing: false });
  here.typing({ to: "bo" });
  assert.deepEqual(socket().sent.slice(2).map((frame) => frame.typing), [undefined, false, undefined]);
});

test("onTyping() reports the start and the end of typing, even if no end arrives", async (t) => {
  const { here, socket, pass } = await client(t);
  const seen = [];
  here.onTyping(({ user, typing, room }) => seen.push([user, typing, room]));
  const leave = here.open("r1");
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().sent, [{ type: "room.open", room: "r1" }]);
  socket().say({ type: "presence.typing", user_id: "bo", to: "ana", expires_in: 6 });
  await pass(5_000);
  socket().say({ type: "presence.typing", user_id: "bo", to: "ana", expires_in: 6 });
  socket().say({ type: "presence.typing", user_id: "chen", room: "r1", expires_in: 6 });
  socket().say({ type: "presence.typing", user_id: "chen", room: "r1", expires_in: 0 });
  socket().say({ type: "presence.typing", user_id: "dara", room: "r2", expires_in: 6 });
  await pass(6_000);
  assert.deepEqual(seen, [
    ["bo", true, undefined],
    ["bo", true, undefined],
    ["chen", true, "r1"],
    ["chen", false, "r1"],
    ["bo", false, undefined],
  ]);
  leave();
  await pass(10);
  await pass(10);
  assert.deepEqual(socket().sent.at(-1), { type: "room.close", room: "r1" });
});

test("an exception in one listener of a watch does not affect the others", async (t) => {
  t.mock.method(console, "error", () => {});
  const { here, socket, pass } = await client(t);
  const seen = [];
  here.watch(["bo"], () => {
    throw new Error("mine");
  });
  here.watch(["bo"], (now) => seen.push(now.status));
  await pass(10);
  await pass(10);
  socket().say({ type: "presence.status", ...status("bo") });
  assert.deepEqual(seen, ["online"]);
  assert.equal(console.error.mock.callCount(), 1);
});

test("onError() reports errors that answer no request", async (t) => {
  const { here, socket } = await client(t);
  const seen = [];
  const stop = here.onError((error) => seen.push(error.code));
  socket().say({ type: "presence.error", code: "not_a_member", message: "…" });
  stop();
  socket().say({ type: "presence.error", code: "not_a_member", message: "…" });
  assert.deepEqual(seen, ["not_a_member"]);
});
