/** REST against a real server: every method once. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Rest } from "../../dist/rest.js";
import { Server, token } from "./server.js";

let server;
const rest = (user, claims) => new Rest(server.url, { token: () => token(user, claims) });
before(async () => {
  server = await new Server({ dead_after: 120, grace: 60 }).start();
});
after(() => server.remove());

test("a service changes relations, and users read and set presence", async () => {
  const backend = rest("backend", { scope: "service" });
  const [ana, bo] = [rest("ana"), rest("bo")];
  await backend.follow("ana", "bo");
  await backend.follow("bo", "ana");
  assert.equal((await ana.heartbeat({ deviceId: "phone", platform: "mobile", activity: "active" })).deviceId, "phone");
  const seen = await bo.get("ana");
  assert.deepEqual([seen.user, seen.status, seen.platforms, seen.stale, seen.lastSeen], ["ana", "online", ["mobile"], false, null]);
  assert.equal((await backend.get("ana", { viewer: "stranger" })).status, "offline");
  await ana.setMode("busy", { until: Date.now() + 3_600_000 });
  assert.equal((await ana.setStatus({ text: "Lunch", emoji: "🍜", until: new Date(Date.now() + 3_600_000) })).text, "Lunch");
  assert.deepEqual([(await bo.get("ana")).status, (await bo.get("ana")).custom.emoji], ["busy", "🍜"]);
  await backend.setMode("away", { user: "ana", source: "call" });
  await backend.setStatus({ text: "In a call" }, { user: "ana", source: "call" });
  assert.deepEqual([(await ana.me()).mode, (await ana.me()).modeSource, (await ana.me()).customSource], ["busy", "user", "user"]);
  await ana.clearStatus();
  await ana.setMode("auto");
  assert.deepEqual([(await ana.me()).mode, (await ana.me()).modeSource, (await ana.me()).custom.text], ["away", "call", "In a call"]);
  await backend.clearStatus({ user: "ana", source: "call" });
  await backend.setMode("auto", { user: "ana", source: "call" });
  assert.deepEqual([(await ana.me()).mode, (await ana.me()).custom], ["auto", null]);
  assert.equal((await backend.count({ viewer: "bo" })).online, 1);
  assert.deepEqual((await backend.leaderboard({ limit: 5, viewer: "bo" })).map(({ user }) => user), ["ana"]);
  assert.deepEqual((await ana.devices()).map(({ deviceId }) => deviceId), ["phone"]);
  await ana.signOut("phone");
  assert.equal((await backend.get("ana")).status, "offline");
  await backend.addContact("ana", "chen", { until: Date.now() + 60_000 });
  await backend.removeContact("ana", "chen");
  await backend.addMember("r/1", "ana");
  await backend.removeMember("r/1", "ana");
  await backend.unfollow("bo", "ana");
  assert.equal((await backend.explain("bo", "ana")).rule, "not_related");
  await assert.rejects(ana.follow("ana", "bo"), { code: "forbidden", status: 403 });
});

test("users block and set preferences, and a service disconnects, revokes and deletes a user", async () => {
  const backend = rest("backend", { scope: "service" });
  const eva = rest("eva");
  for (const pair of [["eva", "finn"], ["finn", "eva"]]) await backend.follow(...pair);
  await eva.heartbeat({ deviceId: "laptop", activity: "active" });
  await eva.block("finn");
  assert.deepEqual(await eva.blocks(), ["finn"]);
  const why = await backend.explain("finn", "eva");
  assert.deepEqual([why.rule, why.shown.status, why.truth.status], ["blocked", "offline", "online"]);
  await eva.unblock("finn");
  assert.deepEqual(await eva.blocks(), []);
  assert.equal(await eva.publicProfile("eva"), undefined);
  assert.equal((await eva.setPreferences({ public: true, shareLastSeen: false, visibility: "everyone" })).public, true);
  assert.equal((await eva.preferences()).shareLastSeen, false);
  assert.equal((await rest("anybody").publicProfile("eva")).status, "online");
  await backend.disconnect("eva", { deviceId: "laptop" });
  assert.equal((await backend.get("eva")).status, "offline");
  await backend.revoke("eva", { issuedBefore: Date.now() });
  await backend.deleteUser("eva");
  assert.equal((await backend.get("eva")).lastSeen, null);
});
