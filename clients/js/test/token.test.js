/** Tokens from an application's endpoint, which is a real HTTP server and fails in all ways, and from functions. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endpoint, eventually, HANG, HTML, RESET } from "./endpoints.js";
import { client, settled, token } from "./fakes.js";

const FAILURES = {
  "500": { status: 500, body: "Internal Server Error" },
  "a proxy's HTML with 502": { status: 502, ...HTML },
  "a proxy's HTML with 200": { status: 200, ...HTML },
  "an empty 200": { status: 200 },
  "404": { status: 404, body: "not found" },
  "403": { status: 403, body: '{"detail":"forbidden"}', type: "application/json" },
  "JSON without a token": { body: '{"token":null}', type: "application/json" },
  "a broken connection": RESET,
  silence: HANG,
};

/** The limit of 10 s ends as soon as the request has arrived, so that a test of silence need not wait. */
function shortLimit(t, requests) {
  t.mock.method(AbortSignal, "timeout", () => {
    const limit = new AbortController();
    const before = requests.length;
    void eventually(() => requests.length > before, "a request").then(() => limit.abort(new Error("no_answer")));
    return limit.signal;
  });
}

async function connected(t, app, options = {}) {
  const made = await client(t, { token: app.url, deviceId: "d", ...options }, { welcome: false });
  await eventually(() => made.Sockets.all.length === 1, "a socket");
  made.socket().welcome();
  const errors = [];
  made.here.onError((error) => errors.push(error.code));
  return { ...made, errors };
}

for (const [name, failure] of Object.entries(FAILURES)) {
  test(`the client retries after 1 s, doubling to 30 s, when the token endpoint fails at the start (${name})`, async (t) => {
    const app = await endpoint(t, failure);
    if (failure === HANG) shortLimit(t, app.requests);
    const { here, pass, socket, Sockets } = await client(t, { token: app.url, deviceId: "d" }, { welcome: false });
    const waits = [];
    for (let n = 1; n <= 7; n++) {
      await eventually(() => app.requests.length === n && here.state.phase === "reconnecting" && here.state.retryIn !== waits.at(-1) || n === 7, `failure ${n}`);
      assert.equal(here.state.reason, "token_failed");
      waits.push(here.state.retryIn);
      await pass(here.state.retryIn - 1);
      assert.equal(app.requests.length, n);
      if (n < 7) await pass(1);
    }
    assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    t.mock.restoreAll();
    app.answers = [{ body: token() }];
    await pass(30_000);
    await eventually(() => Sockets.all.length === 1, "a socket");
    socket().welcome();
    assert.equal(here.state.phase, "connected");
  });

  test(`the connection stays and the renewal is retried when the token endpoint fails (${name})`, async (t) => {
    const app = await endpoint(t, () => ({ body: token({ ttl: 600 }) }));
    const { here, pass, socket, Sockets, errors } = await connected(t, app);
    app.answers = [failure, failure, () => ({ body: token({ ttl: 600, n: 9 }) })];
    if (failure === HANG) shortLimit(t, app.requests);
    await pass(540_000);
    await eventually(() => errors.length === 1, "the first failure");
    await pass(999);
    assert.equal(app.requests.length, 2);
    await pass(1);
    await eventually(() => errors.length === 2, "the second failure");
    t.mock.restoreAll();
    await pass(1_999);
    assert.equal(app.requests.length, 3);
    await pass(1);
    await eventually(() => socket().of("presence.refresh").length === 1, "a refresh");
    assert.equal(here.state.phase, "connected");
    assert.deepEqual(errors, ["token_failed", "token_failed"]);
    assert.equal(Sockets.all.length, 1);
  });
}

test("a token that expires while the token endpoint fails ends the socket, not the client", async (t) => {
  t.mock.method(Math, "random", () => 0);
  const app = await endpoint(t, () => ({ body: token({ ttl: 100 }) }));
  const { here, pass, socket, Sockets, errors } = await connected(t, app);
  app.answers = [{ status: 500, ...HTML }];
  for (let n = 1; n <= 5; n++) {
    await pass(n === 1 ? 80_000 : 500 * 2 ** (n - 1));
    await eventually(() => errors.length === n, `failure ${n}`);
  }
  await pass(5_000);
  assert.equal(here.state.phase, "connected");
  socket().end(4401, "token_expired");
  assert.deepEqual(here.state, { phase: "reconnecting", code: 4401, reason: "token_expired", retryIn: 100 });
  await pass(100);
  await eventually(() => errors.length === 6, "failure 6");
  assert.deepEqual(here.state, { phase: "reconnecting", reason: "token_failed", retryIn: 30_000 });
  for (let n = 7; n < 40; n++) {
    await pass(30_000);
    await eventually(() => errors.length === n, `failure ${n}`);
  }
  app.answers = [() => ({ body: token({ ttl: 100 }) })];
  await pass(30_000);
  await eventually(() => Sockets.all.length === 2, "a second socket");
  socket().welcome();
  assert.equal(here.state.phase, "connected");
});

for (const status of [204, 401]) {
  test(`status ${status} of the token endpoint at the start means signed out, without a retry, an error or console output`, async (t) => {
    const app = await endpoint(t, { status });
    const said = t.mock.method(console, "error", () => {});
    const { here, pass, socket, states, Sockets } = await client(t, { token: app.url }, { welcome: false });
    here.onError((error) => assert.fail(error));
    await eventually(() => here.state.phase === "signed_out", "signed out");
    assert.deepEqual(here.state, { phase: "signed_out" });
    assert.deepEqual(states, [{ phase: "signed_out" }]);
    await assert.rejects(here.me.set({ mode: "busy" }), { code: "closed" });
    await pass(3_600_000);
    assert.equal(app.requests.length, 1);
    assert.equal(Sockets.all.length, 0);
    assert.equal(said.mock.callCount(), 0);
    app.answers = [{ body: token() }];
    here.connect();
    await eventually(() => Sockets.all.length === 1, "a socket");
    socket().welcome();
    assert.equal(here.state.phase, "connected");
  });

  test(`status ${status} of the token endpoint at a renewal means signed out, so the connection ends`, async (t) => {
    const app = await endpoint(t, () => ({ body: token({ ttl: 100 }) }));
    const { here, pass, socket, Sockets, errors } = await connected(t, app);
    app.answers = [{ status }];
    await pass(80_000);
    await eventually(() => here.state.phase === "signed_out", "signed out");
    assert.equal(socket().readyState, 3);
    await pass(3_600_000);
    assert.equal(app.requests.length, 2);
    assert.deepEqual(errors, []);
    app.answers = [{ body: token() }];
    here.connect();
    await eventually(() => Sockets.all.length === 2, "a second socket");
    socket().welcome();
    assert.equal(here.state.phase, "connected");
  });
}

for (const [name, wrap, type] of [
  ["plain text", (jwt) => `${jwt}\n`, "text/plain"],
  ["JSON with a field token", (jwt) => JSON.stringify({ token: jwt, more: 1 }), "application/json"],
  ["a JSON string", (jwt) => JSON.stringify(jwt), "application/json"],
]) {
  test(`the token endpoint may answer with ${name}`, async (t) => {
    const jwt = token({ ttl: 1e9 });
    const app = await endpoint(t, { body: wrap(jwt), type });
    const { socket } = await connected(t, app);
    assert.deepEqual(socket().protocols, ["herenow.v1", "herenow.token." + jwt]);
  });
}

test("a token option that is a JWT is not fetched as a URL, and an empty string means signed out", async (t) => {
  t.mock.method(globalThis, "fetch", () => assert.fail("fetched"));
  const { socket } = await client(t, { token: token() });
  assert.equal(socket().protocols.length, 2);
  t.mock.timers.reset();
  const { here } = await client(t, { token: "" }, { welcome: false });
  assert.equal(here.state.phase, "signed_out");
});

for (const [name, wrong] of Object.entries({
  "returns HTML": () => HTML.body,
  "returns something that is no text": () => ({ token: 1 }),
  "rejects without a reason": () => Promise.reject(),
  "throws": () => {
    throw new Error("away");
  },
})) {
  test(`a token function that ${name} at a renewal is called again, and the connection stays`, async (t) => {
    let asked = 0;
    const source = () => (++asked === 2 || asked === 3 ? wrong() : token({ ttl: 100, n: asked }));
    const { here, socket, pass } = await client(t, { token: source });
    const errors = [];
    here.onError((error) => errors.push(error.code));
    await pass(80_000);
    assert.equal(here.state.phase, "connected");
    await pass(1_000);
    await pass(1_999);
    assert.equal(asked, 3);
    await pass(1);
    assert.equal(asked, 4);
    assert.equal(socket().of("presence.refresh").length, 1);
    assert.deepEqual(errors, ["token_failed", "token_failed"]);
  });
}

test("a token function that never answers is called again", async (t) => {
  const limits = [];
  t.mock.method(AbortSignal, "timeout", (ms) => {
    limits.push(ms);
    const limit = new AbortController();
    setImmediate(() => limit.abort(new Error("no_answer")));
    return limit.signal;
  });
  let asked = 0;
  const { here, pass, Sockets } = await client(t, { token: () => (++asked < 3 ? new Promise(() => {}) : token()) }, { welcome: false });
  await settled();
  assert.equal(here.state.reason, "token_failed");
  await pass(1_000);
  assert.equal(Sockets.all.length, 0);
  await pass(2_000);
  assert.equal(Sockets.all.length, 1);
  assert.deepEqual(limits, [10_000, 10_000, 10_000]);
});

test("a function that throws leaves no rejection behind when its time is over", async (t) => {
  const unhandled = [];
  const report = (error) => unhandled.push(error);
  process.on("unhandledRejection", report);
  t.after(() => process.off("unhandledRejection", report));
  const limits = [];
  t.mock.method(AbortSignal, "timeout", () => {
    limits.push(new AbortController());
    return limits.at(-1).signal;
  });
  const source = () => {
    throw new Error("away");
  };
  const { here } = await client(t, { token: source }, { welcome: false });
  await settled();
  assert.equal(here.state.reason, "token_failed");
  for (const limit of limits) limit.abort(new Error("no_answer"));
  await new Promise(setImmediate);
  assert.deepEqual(unhandled, []);
});

test("connect() and close() replace a pending token request", async (t) => {
  let fails = true;
  let asked = 0;
  const source = () => {
    asked++;
    if (fails) throw new Error("away");
    return token();
  };
  const { here, pass, Sockets } = await client(t, { token: source }, { welcome: false });
  fails = false;
  here.connect();
  await settled();
  assert.equal(Sockets.all.length, 1);
  await pass(5_000);
  assert.equal(asked, 2);
  fails = true;
  here.connect();
  await settled();
  here.close();
  await pass(60_000);
  assert.equal(asked, 3);
});

test("a needless connect() while token requests fail keeps the connection", async (t) => {
  let fails = false;
  const source = () => {
    if (fails) throw new Error("away");
    return token();
  };
  const { here, pass, states, Sockets } = await client(t, { token: source });
  fails = true;
  here.connect();
  await pass(5_000);
  fails = false;
  await pass(5_000);
  assert.deepEqual(states.map(({ phase }) => phase), ["connected"]);
  assert.equal(Sockets.all.length, 1);
});

test("the client works without AbortSignal.timeout", async (t) => {
  const { timeout } = AbortSignal;
  AbortSignal.timeout = undefined;
  t.after(() => (AbortSignal.timeout = timeout));
  const app = await endpoint(t, { body: token({ ttl: 1e9 }) });
  const { here } = await connected(t, app);
  assert.equal(here.state.phase, "connected");
});

test("while the client reconnects, its state has a reason", async (t) => {
  const { here, socket, pass } = await client(t, {}, { welcome: false });
  socket().end(1006);
  assert.equal(here.state.reason, "unreachable");
  await pass(2_000);
  socket().welcome();
  socket().end(1006);
  assert.equal(here.state.reason, "connection_lost");
});
