/** REST: the requests sent, and the result of every kind of response. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Rest, RestError } from "../build/rest.js";
import { endpoint, HTML } from "./endpoints.js";
import { token } from "./fakes.js";

function client(...answers) {
  const asked = [];
  const fetch = async (url, { method, headers, body }) => {
    asked.push({ url, method, headers, body: body && JSON.parse(body) });
    const answer = answers.shift() ?? new Response(null, { status: 204 });
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return { rest: new Rest("https://here.test/", { token: async () => "t", fetch }), asked };
}
const json = (value, init) => new Response(JSON.stringify(value), init);

test("the REST client encodes ids with special characters in the URL", async () => {
  const { rest, asked } = client();
  await rest.block("a/b?c#d%é");
  await rest.addMember("r/1", 42);
  assert.deepEqual(asked.map(({ method, url }) => [method, url]), [
    ["PUT", "https://here.test/api/v1/blocks/a%2Fb%3Fc%23d%25%C3%A9"],
    ["PUT", "https://here.test/api/v1/rooms/r%2F1/members/42"],
  ]);
  assert.equal(asked[0].headers.authorization, "Bearer t");
  assert.equal(asked[0].body, undefined);
});

test("the REST client can fetch its token from an endpoint", async (t) => {
  const jwt = token();
  const app = await endpoint(t, { body: jwt }, { status: 502, ...HTML }, { status: 401 });
  const asked = [];
  const fetch = async (_, { headers }) => (asked.push(headers.authorization), new Response(null, { status: 204 }));
  const rest = new Rest("https://here.test/", { token: app.url, fetch });
  await rest.block("bo");
  await assert.rejects(rest.block("bo"), { name: "RestError", code: "token_failed", status: 0 });
  await assert.rejects(rest.block("bo"), { name: "RestError", code: "signed_out" });
  assert.deepEqual(asked, [`Bearer ${jwt}`]);
});

test("the REST client does not send preferences that are not given", async () => {
  const answer = { visibility: "nobody", share_last_seen: false, idle_after: null, public: true };
  const { rest, asked } = client(json(answer), json(answer));
  assert.deepEqual(await rest.setPreferences({ visibility: "nobody" }), { visibility: "nobody", shareLastSeen: false, idleAfter: null, public: true });
  await rest.setPreferences({ idleAfter: null, shareLastSeen: false });
  assert.deepEqual(asked.map(({ body }) => body), [{ visibility: "nobody" }, { share_last_seen: false, idle_after: null }]);
});

test("a mode and a status set by a service name their source, and the user's own presence shows it", async () => {
  const self = { status: "busy", mode: "busy", until: null, custom_status: null, devices: [], mode_source: "call" };
  const { rest, asked } = client(json({ mode: "busy", until: null }), json({ custom_status: null }), undefined, json(self));
  await rest.setMode("busy", { user: "ana", source: "call" });
  await rest.setStatus({ text: "In a call" }, { user: "ana", source: "call" });
  await rest.clearStatus({ user: "ana", source: "call" });
  assert.deepEqual([(await rest.me()).modeSource, asked[0].body.source, asked[1].body.source], ["call", "call", "call"]);
  assert.equal(asked[2].url, "https://here.test/api/v1/users/ana/status?source=call");
});

test("a RestError has the server's code and retryAfter", async () => {
  const { rest } = client(json({ code: "polling_too_fast", detail: "Bulk reads are limited." }, { status: 429, headers: { "retry-after": "30" } }));
  await assert.rejects(rest.getMany(["bo"]), { name: "RestError", code: "polling_too_fast", message: "Bulk reads are limited.", status: 429, retryAfter: 30 });
});

test("a response that is not from herenow rejects with its HTTP status, a missing one with no_answer", async () => {
  const { rest } = client(new Response("<html>", { status: 502 }), new Response("<html>sign in", { status: 200 }), new TypeError("fetch failed"));
  await assert.rejects(rest.me(), { code: "http_502", status: 502 });
  await assert.rejects(rest.me(), { code: "http_200", status: 200 });
  await assert.rejects(rest.me(), (error) => error instanceof RestError && error.code === "no_answer" && error.status === 0);
});

test("publicProfile() returns undefined for not_found, and rejects with other errors", async () => {
  const { rest } = client(json({ code: "not_found" }, { status: 404 }), json({ code: "not_ready" }, { status: 503 }));
  assert.equal(await rest.publicProfile("bo"), undefined);
  await assert.rejects(rest.publicProfile("bo"), { code: "not_ready" });
});
