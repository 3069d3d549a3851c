/** The built package against a real server: verifies what the other tests assume of it. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { phase, sees, Server, token, until } from "./server.js";

let server;
const clients = [];
before(async () => {
  server = await new Server().start();
  await server.befriend("ana", "bo", "chen");
  for (const user of ["ana", "bo"]) await server.rest("PUT", `/rooms/lobby/members/${user}`);
});
after(async () => {
  for (const here of clients) here.close();
  await server.remove();
});
function client(...args) {
  const here = server.client(...args);
  clients.push(here);
  return here;
}
function recorded(here, user) {
  const shown = [];
  here.watch([user], (now) => shown.push(`${now.status}${now.stale ? " (stale)" : ""}`));
  return shown;
}

test("a viewer sees a user connect, become busy, type and sign out", async () => {
  const ana = client("ana", { deviceId: "a1" });
  const shown = recorded(ana, "bo");
  await sees(ana, "bo", "offline");
  const bo = client("bo", { deviceId: "b1", platform: "mobile" });
  await sees(ana, "bo", "online");
  assert.deepEqual(ana.get("bo").platforms, ["mobile"]);

  await bo.me.set({ mode: "busy", text: "In a meeting", until: Date.now() + 3_600_000 });
  await sees(ana, "bo", "busy");
  assert.equal(ana.get("bo").custom.text, "In a meeting");
  await until((look) => bo.me.on(look), () => bo.me.get()?.mode === "busy", "one's own mode");
  await assert.rejects(bo.me.set({ text: "x".repeat(101) }), { code: "text_too_long" });
  await bo.me.auto();
  await bo.me.clear();
  await sees(ana, "bo", "online");

  const typing = [];
  let heard = () => {};
  const on = (look) => ((heard = look), () => {});
  ana.onTyping((event) => (typing.push([event.user, event.to ?? event.room, event.typing]), heard()));
  ana.open("lobby");
  await sees(ana, "chen", "offline"); // asked for together with the room
  await ana.me.set({ mode: "auto" }); // so its answer comes after the room is open
  bo.typing({ to: "ana" });
  await until(on, () => typing.length === 1, "typing to ana");
  bo.typing({ to: "ana", typing: false });
  await until(on, () => typing.length === 2, "the end of typing");
  bo.typing({ room: "lobby" });
  await until(on, () => typing.length === 3, "typing in the lobby");
  assert.deepEqual(typing, [["bo", "ana", true], ["bo", "ana", false], ["bo", "lobby", true]]);

  bo.bye();
  await phase(bo, "closed");
  assert.equal(bo.state.code, 1000);
  await sees(ana, "bo", "offline");
  assert.deepEqual(shown.filter((now, n) => now !== shown[n - 1]), ["offline", "online", "busy", "online", "offline"]);
  ana.close();
});

test("a client watches its contacts, and gets denials for an unrelated user and an invalid id", async () => {
  const ana = client("ana", { deviceId: "a2" });
  const seen = new Map();
  let heard = () => {};
  ana.watchContacts((now) => (seen.set(now.user, now.status), heard()));
  await until((look) => ((heard = look), () => {}), () => seen.size >= 2, "the contacts");
  assert.deepEqual([...seen.keys()].sort(), ["bo", "chen"]);
  const denied = [];
  ana.watch(["stranger", "no id"], (now) => (denied.push([now.user, now.denied]), heard()));
  await until((look) => ((heard = look), () => {}), () => denied.length === 2, "two denials");
  assert.deepEqual(denied, [["no id", "invalid_user_id"], ["stranger", "not_mutual_followers"]]);
  ana.close();
});

test("a token renewal does not interrupt the connection", async () => {
  const bo = client("bo", { deviceId: "b3", ttl: 6 });
  const phases = [];
  bo.onState(({ phase }) => phases.push(phase));
  await phase(bo, "connected");
  await new Promise((resolve) => setTimeout(resolve, 7_000)); // the server ends a token by its own clock
  await bo.me.auto();
  assert.deepEqual(phases.filter((each) => each !== "connecting"), ["connected"]);
  bo.close();
});

test("an expired token closes the connection with 4401, and a new token reconnects", async () => {
  let renew = false;
  let first;
  const chen = client("chen", { deviceId: "c4", token: () => (renew ? token("chen") : (first ??= token("chen", { ttl: 4 }))) });
  await phase(chen, "connected");
  await phase(chen, "reconnecting");
  assert.equal(chen.state.code, 4401);
  renew = true;
  await phase(chen, "connected");
  chen.close();
});

test("the server refuses a token with a bad signature, and the client does not retry", async () => {
  const chen = client("chen", { token: token("chen").slice(0, -3) + "abc" });
  await phase(chen, "closed");
  assert.equal(chen.state.code, 4401);
  chen.close();
});

test("a sign-out by REST closes the connection with 4409, and the client does not reconnect", async () => {
  const chen = client("chen", { deviceId: "c5" });
  await phase(chen, "connected");
  const answer = await fetch(`${server.url}/api/v1/presence/devices/c5`, { method: "DELETE", headers: { authorization: `Bearer ${token("chen")}` } });
  assert.equal(answer.status, 204);
  await phase(chen, "closed");
  assert.equal(chen.state.code, 4409);
  chen.close();
});

test("while a killed server restarts, users are stale but never offline, and fresh again afterwards", async () => {
  const ana = client("ana", { deviceId: "a6" });
  const bo = client("bo", { deviceId: "b6" });
  await phase(bo, "connected");
  await sees(ana, "bo", "online");
  const shown = recorded(ana, "bo");
  await server.end("SIGKILL");
  await until((look) => ana.watch(["bo"], look), () => ana.get("bo").stale, "bo to be stale");
  assert.deepEqual(shown, ["online", "online (stale)"]);
  await server.start();
  await sees(ana, "bo", "online");
  await bo.me.set({ mode: "busy" });
  await sees(ana, "bo", "busy");
  await bo.me.auto();
  ana.close();
  bo.close();
});

test("the client reconnects after the delay that a draining server gives", async () => {
  const ana = client("ana", { deviceId: "a7" });
  await phase(ana, "connected");
  const states = [];
  ana.onState((state) => states.push(state));
  await server.end("SIGTERM");
  await phase(ana, "reconnecting");
  assert.equal(states[0].code, 1012);
  const asked = Number(/retry_after_ms=(\d+)/.exec(states[0].reason)[1]);
  assert.ok(states[0].retryIn >= asked);
  await server.start();
  await phase(ana, "connected");
  ana.close();
});
