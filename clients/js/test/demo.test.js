/** The texts and messages of the demo. The page itself is tested in a browser. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { notice } from "../build/demo/banner.js";
import { Messages } from "../build/demo/messages.js";
import { ago, custom, hue, name, own, sentence } from "../build/demo/words.js";
import { unknown } from "../build/roster.js";
import { eventually } from "./endpoints.js";

const MINUTE = 60_000;
const NOW = new Date(2026, 4, 10, 14, 30).getTime();
const person = (more) => ({ ...unknown("bo"), ...more });

test("sentence() of the demo describes the status of a user", () => {
  const rows = [
    [{ status: "online", platforms: ["web"] }, "Online"],
    [{ status: "online", platforms: ["mobile"] }, "Online, on the phone"],
    [{ status: "online", platforms: ["mobile", "web"] }, "Online"],
    [{ status: "away", since: NOW - 59_999 }, "Away"],
    [{ status: "away", since: NOW - 5 * MINUTE }, "Away for 5 min"],
    [{ status: "away", since: NOW - 125 * MINUTE }, "Away for 2 h"],
    [{ status: "away", since: null }, "Away"],
    [{ status: "busy" }, "Do not disturb"],
    [{ status: "offline" }, "Offline"],
    [{ status: "offline", lastSeen: NOW - 1_000 }, "Last seen just now"],
    [{ status: "offline", lastSeen: NOW + 5_000 }, "Last seen just now"],
    [{ status: "offline", lastSeenBucket: "within_week" }, "Last seen within a week"],
    [{ status: "offline", lastSeenBucket: "of the future" }, "Offline"],
    [{ status: "unknown" }, "Not known yet"],
    [{ status: "online", platforms: [], stale: true }, "Online · last known"],
  ];
  for (const [more, line] of rows) assert.equal(sentence(person(more), NOW), line);
});

test("ago() of the demo describes when a user was last seen", () => {
  assert.equal(ago(NOW - 12 * MINUTE, NOW), "12 min ago");
  assert.equal(ago(NOW - 59 * MINUTE - 59_999, NOW), "59 min ago");
  assert.equal(ago(new Date(2026, 4, 10, 0, 5).getTime(), NOW), "today at 00:05");
  assert.equal(ago(new Date(2026, 4, 9, 23, 55).getTime(), NOW), "yesterday at 23:55");
  assert.equal(ago(new Date(2026, 4, 3, 9, 0).getTime(), NOW), "on May 3");
});

test("own() of the demo describes the user's own status", () => {
  const me = { status: "online", mode: "auto", until: null, custom: null, devices: [{}] };
  assert.equal(own(undefined), "…");
  assert.equal(own(me), "Available");
  assert.equal(own({ ...me, status: "away" }), "Available, but away");
  assert.equal(own({ ...me, devices: [{}, {}] }), "Available on 2 devices");
  assert.equal(own({ ...me, mode: "busy", until: new Date(2026, 4, 10, 17, 0).getTime() }), "Do not disturb until 17:00");
  assert.match(own({ ...me, mode: "invisible" }), /others see you offline/);
  assert.equal(custom({ custom: { text: "", emoji: "🍜", expiresAt: null } }), "🍜");
  assert.equal(custom({ custom: null }), "");
});

test("name() and hue() of the demo accept any user id", () => {
  assert.equal(name("ana"), "Ana");
  assert.equal(name("user-42"), "user-42");
  for (const id of ["ana", "", "🍜", "a/b?<b>"]) assert.ok(hue(id) >= 0 && hue(id) < 360);
});

test("notice() of the demo describes the connection state, unless connected", () => {
  assert.equal(notice({ phase: "connected" }), undefined);
  assert.equal(notice({ phase: "reconnecting", reason: "" }).act, undefined);
  assert.match(notice({ phase: "reconnecting", reason: "token_failed" }).text, /token/);
  assert.equal(notice({ phase: "signed_out" }).act, "Sign in");
  assert.equal(notice({ phase: "closed", code: 4409 }).act, "Come back");
  assert.match(notice({ phase: "closed", code: 4401, reason: "token_expired" }).text, /token_expired/);
  assert.match(notice({ phase: "closed", code: undefined, reason: "TypeError" }).text, /TypeError/);
});

test("demo chat messages reach only their recipients", async (t) => {
  const heard = [];
  const Channel = globalThis.BroadcastChannel;
  globalThis.BroadcastChannel = class extends Channel {
    constructor(name) {
      super(name);
      this.unref(); // a page ends when it is closed, this process when nothing is left to wait for
    }
  };
  t.after(() => (globalThis.BroadcastChannel = Channel));
  const talks = ["ana", "bo", "chen"].map((who) => new Messages(who, (talk, { text }) => heard.push([who, talk, text])));
  const ana = new Messages("ana", () => {}); // her second tab
  talks[1].send("ana", "hello");
  talks[2].send("#lobby", "all");
  await eventually(() => heard.length >= 3 && ana.of("bo").length > 0, "the messages");
  assert.deepEqual(heard.sort(), [["ana", "#lobby", "all"], ["ana", "bo", "hello"], ["bo", "#lobby", "all"]]);
  assert.deepEqual(ana.of("bo").map(({ text }) => text), ["hello"]);
  assert.deepEqual(talks[2].of("bo"), []);
});
