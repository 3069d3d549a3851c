/** One connection: connecting, heartbeats, closing, reconnecting. Uses a fake socket and mocked timers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, settled, sockets, status, token } from "./fakes.js";

test("the client connects with token, device and platform", async (t) => {
  const given = token();
  const { socket, here } = await client(t, { token: given, deviceId: "phone 1/2".replaceAll(" ", "-"), platform: "mobile" });
  const url = new URL(socket().url);
  assert.equal(url.searchParams.get("device_id"), "phone-1/2");
  assert.equal(url.searchParams.get("platform"), "mobile");
  assert.deepEqual(socket().protocols, ["herenow.v1", "herenow.token." + given]);
  assert.equal(here.state.phase, "connected");
});

test("the client sends heartbeats at the interval that the server gives", async (t) => {
  const { socket, pass } = await client(t, {}, { welcome: false });
  socket().welcome({ beat_every: 7 });
  await pass(6_999);
  assert.deepEqual(socket().sent, []);
  await pass(1);
  assert.deepEqual(socket().sent, [{ type: "presence.heartbeat" }]);
  await pass(7_000);
  assert.equal(socket().of("presence.heartbeat").length, 2);
});

test("user activity is reported once, with the next heartbeat", async (t) => {
  const { here, socket, pass } = await client(t);
  here.active();
  here.active();
  assert.deepEqual(socket().sent, []);
  await pass(30_000);
  assert.deepEqual(socket().sent, [{ type: "presence.heartbeat", activity_type: "active" }]);
  await pass(30_000);
  assert.deepEqual(socket().sent.at(-1), { type: "presence.heartbeat" });
});

test("the client is idle after idle_after without activity, and active again at the next activity", async (t) => {
  const { here, socket, pass } = await client(t);
  for (let beat = 0; beat < 10; beat++) {
    await pass(30_000);
    socket().say({ type: "presence.ok" });
  }
  assert.equal(socket().of("presence.away").length, 1);
  for (let beat = 0; beat < 5; beat++) {
    await pass(30_000);
    socket().say({ type: "presence.ok" });
  }
  assert.equal(socket().of("presence.away").length, 1);
  here.active();
  assert.deepEqual(socket().sent.at(-1), { type: "presence.active" });
});

test("a reconnect while the user is idle does not count as activity", async (t) => {
  const { here, socket, pass } = await client(t);
  here.idle();
  socket().end(1006);
  await pass(2_000);
  socket().welcome();
  assert.deepEqual(socket().sent, [{ type: "presence.away" }]);
});

test("the client checks a silent server, and reconnects if it does not answer", async (t) => {
  const { socket, pass, here, Sockets } = await client(t);
  const first = socket();
  for (let beat = 0; beat < 4; beat++) await pass(30_000);
  assert.deepEqual(first.sent.at(-1), { type: "presence.heartbeat", id: "beat" });
  first.say({ type: "presence.ok", id: "beat" });
  await pass(10_000);
  assert.equal(here.state.phase, "connected");
  for (let beat = 0; beat < 4; beat++) await pass(30_000);
  await pass(10_000);
  assert.equal(here.state.phase, "reconnecting");
  assert.equal(here.state.reason, "no_answer");
  assert.equal(first.readyState, 3);
  await pass(2_000);
  assert.equal(Sockets.all.length, 2);
});

test("the client gives up a connection that gets no welcome", async (t) => {
  const { here, pass, Sockets } = await client(t, {}, { welcome: false });
  await pass(10_000);
  assert.equal(here.state.phase, "reconnecting");
  await pass(2_000);
  assert.equal(Sockets.all.length, 2);
});

test("the delay before a reconnect grows after each failure, with full jitter, up to 30 s", async (t) => {
  t.mock.method(Math, "random", () => 0.999);
  const { here, pass, socket, Sockets } = await client(t, { deviceId: "d" }, { welcome: false });
  const waits = [];
  for (let n = 0; n < 8; n++) {
    socket().end(1006);
    waits.push(here.state.retryIn);
    await pass(here.state.retryIn - 1);
    assert.equal(Sockets.all.length, n + 1);
    await pass(1);
    assert.equal(Sockets.all.length, n + 2);
  }
  assert.deepEqual(waits, [1998, 3996, 7992, 15984, 29970, 29970, 29970, 29970]);
});

test("a connection that ends right after its welcome counts as a failure", async (t) => {
  t.mock.method(Math, "random", () => 0.999);
  const { here, pass, socket } = await client(t, { deviceId: "d" }, { welcome: false });
  for (let n = 0; n < 6; n++) {
    socket().welcome();
    socket().end(1013);
    await pass(here.state.retryIn);
  }
  socket().end(1006);
  assert.equal(here.state.retryIn, 29970);
});

test("a connection that lasted ten seconds does not count as a failure", async (t) => {
  t.mock.method(Math, "random", () => 0.999);
  const { here, pass, socket } = await client(t, { deviceId: "d" });
  for (let n = 0; n < 3; n++) {
    await pass(10_000);
    socket().end(1006);
    assert.equal(here.state.retryIn, 1998);
    await pass(1998);
    socket().welcome();
  }
});

test("the client reconnects after the delay that the server gives, not before", async (t) => {
  t.mock.method(Math, "random", () => 0);
  const { here, pass, socket, Sockets } = await client(t, { deviceId: "d" });
  socket().end(1012, "retry_after_ms=5000");
  assert.deepEqual(here.state, { phase: "reconnecting", code: 1012, reason: "retry_after_ms=5000", retryIn: 5000 });
  await pass(4_999);
  assert.equal(Sockets.all.length, 1);
  await pass(1);
  assert.equal(Sockets.all.length, 2);
});

for (const code of [1000, 4400, 4403, 4409]) {
  test(`after close code ${code} the client stays closed until connect() is called`, async (t) => {
    const { here, pass, socket, Sockets } = await client(t);
    socket().end(code, "why");
    assert.deepEqual(here.state, { phase: "closed", code, reason: "why" });
    await pass(600_000);
    assert.equal(Sockets.all.length, 1);
    here.connect();
    await settled();
    assert.equal(Sockets.all.length, 2);
    socket().welcome();
    assert.equal(here.state.phase, "connected");
  });
}

test("after close code 4429 (too many connections) the client reconnects slowly", async (t) => {
  t.mock.method(Math, "random", () => 0.5);
  const { here, socket } = await client(t, { deviceId: "d" });
  socket().end(4429);
  assert.equal(here.state.retryIn, 15_000);
});

test("the client does not retry a refused token, but tries a different one", async (t) => {
  const tokens = [token({ n: 1 }), token({ n: 2 })];
  let asked = 0;
  const { here, pass, socket, Sockets } = await client(t, { token: () => tokens[Math.min(asked++, 1)] }, { welcome: false });
  socket().end(4401, "token_expired");
  await pass(2_000);
  assert.equal(Sockets.all.length, 2);
  assert.equal(socket().protocols[1], "herenow.token." + tokens[1]);
  socket().end(4401, "token_revoked");
  await pass(4_000);
  assert.deepEqual(here.state, { phase: "closed", code: 4401, reason: "token_refused" });
  await pass(600_000);
  assert.equal(Sockets.all.length, 2);
});

test("the client closes after four refused tokens", async (t) => {
  let n = 0;
  const { here, pass, socket, Sockets } = await client(t, { token: () => token({ n: n++ }) }, { welcome: false });
  for (let turn = 0; turn < 4; turn++) {
    socket().end(4401, "token_bad_signature");
    await pass(30_000);
  }
  assert.deepEqual(here.state, { phase: "closed", code: 4401, reason: "token_bad_signature" });
  assert.equal(Sockets.all.length, 4);
});

test("the client closes when a fixed token is refused", async (t) => {
  const { here, pass, socket, Sockets } = await client(t, { token: token() }, { welcome: false });
  socket().end(4401, "token_expired");
  await pass(2_000);
  assert.equal(here.state.phase, "closed");
  assert.equal(Sockets.all.length, 1);
});

test("without a signed-in user the client opens no connection", async (t) => {
  const { here, pass, Sockets } = await client(t, { token: async () => null }, { welcome: false });
  assert.deepEqual(here.state, { phase: "signed_out" });
  await pass(600_000);
  assert.equal(Sockets.all.length, 0);
});

test("the client retries a failing token function with back-off, and reports the error", async (t) => {
  let fails = true;
  let asked = 0;
  const source = async () => {
    asked++;
    if (fails) throw new Error("the back end is away");
    return token();
  };
  const { here, pass, Sockets } = await client(t, { token: source, deviceId: "d" }, { welcome: false });
  const errors = [];
  here.onError((error) => errors.push(error.code));
  assert.equal(here.state.reason, "token_failed");
  const waits = [];
  for (let n = 0; n < 4; n++) {
    waits.push(here.state.retryIn);
    await pass(here.state.retryIn);
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000]);
  assert.deepEqual(errors, Array(4).fill("token_failed"));
  assert.equal(asked, 5);
  assert.equal(Sockets.all.length, 0);
  fails = false;
  await pass(here.state.retryIn);
  assert.equal(Sockets.all.length, 1);
});

test("the client renews the token before it expires, by the server's clock", async (t) => {
  let n = 0;
  const made = [];
  const source = () => made[made.push(token({ ttl: 600, n: n++ })) - 1];
  const { socket, pass } = await client(t, { token: source }, { welcome: false });
  socket().welcome({ server_time: Date.now() - 100_000 }); // our clock is ahead: the token has 700 s yet
  await pass(639_999);
  assert.equal(socket().of("presence.refresh").length, 0);
  await pass(1);
  assert.deepEqual(socket().of("presence.refresh"), [{ type: "presence.refresh", token: made[1] }]);
  assert.equal(made.length, 2);
});

test("a failed renewal keeps the connection, and a reconnect requests a new token", async (t) => {
  let fails = false;
  let n = 0;
  const source = () => {
    if (fails) throw new Error("away");
    return token({ ttl: 100, n: n++ });
  };
  const { here, socket, pass, Sockets } = await client(t, { token: source });
  const errors = [];
  here.onError((error) => errors.push(error.code));
  fails = true;
  await pass(80_000);
  assert.deepEqual(errors, ["token_failed"]);
  assert.equal(here.state.phase, "connected");
  fails = false;
  socket().end(4401, "token_expired");
  await pass(2_000);
  assert.equal(Sockets.all.length, 2);
  socket().welcome();
  assert.equal(here.state.phase, "connected");
});

test("the client retries a renewal that fails or returns the same token, at a limited rate", async (t) => {
  let asked = 0;
  let first;
  const source = () => {
    if (++asked === 2) throw new Error("away");
    return (first ??= token({ ttl: 100 }));
  };
  const { here, socket, pass } = await client(t, { token: source });
  for (let second = 0; second < 110; second++) await pass(1_000), socket().say({ type: "presence.ok" });
  assert.equal(here.state.phase, "connected"); // the server ends it, not we
  assert.ok(asked >= 4 && asked <= 8, `asked ${asked} times`);
  assert.equal(socket().of("presence.refresh").length, 0);
});

test("the client closes when a renewal returns the token of another user", async (t) => {
  let sub = "ana";
  const { here, socket, pass, Sockets } = await client(t, { token: () => token({ sub, ttl: 100 }) });
  sub = "bo";
  await pass(80_000);
  assert.deepEqual(here.state, { phase: "closed", code: 4401, reason: "token_other_user" });
  assert.equal(socket().of("presence.refresh").length, 0);
  await pass(600_000);
  assert.equal(Sockets.all.length, 1);
});

test("connect() after another user signed in uses the new token and forgets the old statuses", async (t) => {
  let sub = "ana";
  const { here, socket, pass, Sockets } = await client(t, { token: () => token({ sub }) });
  const seen = [];
  here.watch(["bo"], (now, before) => seen.push([now.status, before?.status]));
  await pass(10);
  socket().say({ type: "presence.self", status: "online", mode: "busy", until: null, custom_status: null, devices: [] });
  socket().say({ type: "presence.status", ...status("bo") });
  here.bye();
  socket().end(1000, "signed_out");
  sub = "chen";
  here.connect();
  await settled();
  assert.equal(Sockets.all.length, 2);
  assert.equal(JSON.parse(atob(socket().protocols[1].split(".")[3])).sub, "chen");
  assert.equal(here.get("bo").status, "unknown");
  assert.equal(here.me.get(), undefined);
  socket().welcome();
  await pass(10);
  assert.deepEqual(socket().of("presence.subscribe").map((frame) => frame.target_user_ids), [["bo"]]);
  socket().say({ type: "presence.status", ...status("bo", "away", 1) });
  assert.deepEqual(seen, [["online", undefined], ["away", undefined]]);
});

test("connect() for the same user requests a new token", async (t) => {
  let n = 0;
  const { here, socket, Sockets } = await client(t, { token: () => token({ n: n++ }) });
  const first = socket().protocols[1];
  socket().end(4409, "signed_out");
  here.connect();
  await settled();
  assert.equal(Sockets.all.length, 2);
  assert.notEqual(socket().protocols[1], first);
});

test("with two concurrent calls of connect(), the token of the later call is used", async (t) => {
  const given = [];
  const { here, Sockets, pass } = await client(t, { token: () => new Promise((resolve) => given.push(resolve)) }, { welcome: false });
  here.connect();
  given[1](token({ sub: "bo" }));
  await settled();
  given[0](token({ sub: "ana" }));
  await pass(20);
  assert.deepEqual(Sockets.all.map((socket) => JSON.parse(atob(socket.protocols[1].split(".")[3])).sub), ["bo"]);
});

test("a clock that is set back by an hour affects neither heartbeats nor activity nor the token", async (t) => {
  const { here, socket, pass } = await client(t, {});
  const wall = Date.now;
  const steady = performance.now;
  performance.now = () => wall();
  t.after(() => (performance.now = steady));
  t.mock.method(Date, "now", () => wall() - 3_600_000);
  for (let beat = 0; beat < 4; beat++) await pass(30_000);
  assert.deepEqual(socket().sent.at(-1), { type: "presence.heartbeat", id: "beat" }); // silence is noticed all the same
  socket().say({ type: "presence.ok", id: "beat" });
  here.active();
  await pass(30_000);
  assert.equal(socket().sent.at(-1).activity_type, "active");
});

test("without WebSocket support the client is closed, with a reason and without an exception", async (t) => {
  const { here, pass } = await client(t, { WebSocket: class { constructor() { throw new TypeError("no sockets here"); } } }, { welcome: false });
  assert.equal(here.state.phase, "closed");
  assert.match(here.state.reason, /no sockets here/);
  await pass(60_000);
});

test("the client ignores frames that are not JSON or of unknown type", async (t) => {
  const { here, socket } = await client(t);
  socket().onmessage({ data: "{" });
  socket().say({ type: "presence.from_the_future", id: "w1" });
  assert.equal(here.state.phase, "connected");
});

test("close() is final: no timer, socket or callback remains", async (t) => {
  const { here, socket, states, pass, Sockets } = await client(t);
  here.watch(["bo"], () => assert.fail("closed"));
  here.close();
  here.close();
  assert.deepEqual(states.at(-1), { phase: "closed" });
  assert.equal(socket().readyState, 3);
  here.connect();
  here.active();
  here.typing({ to: "bo" });
  await assert.rejects(here.me.set({ mode: "busy" }), { code: "closed" });
  await pass(600_000);
  assert.equal(Sockets.all.length, 1);
});

test("close() while a token is requested opens no socket", async (t) => {
  let give;
  const { here, Sockets } = await client(t, { token: () => new Promise((resolve) => (give = resolve)) }, { welcome: false });
  here.close();
  give(token());
  await settled();
  assert.equal(Sockets.all.length, 0);
});

test("the client ignores messages of an old socket", async (t) => {
  const { here, socket, pass } = await client(t);
  const old = socket();
  const seen = [];
  here.watch(["bo"], (now) => seen.push(now.status));
  const late = old.onmessage;
  old.end(1006);
  await pass(2_000);
  socket().welcome();
  assert.equal(old.onmessage, null);
  assert.ok(late);
  socket().say({ type: "presence.status", ...status("bo", "busy") });
  assert.deepEqual(seen, ["busy"]);
});
