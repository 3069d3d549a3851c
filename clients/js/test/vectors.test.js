/** The rules that all SDKs share: spec/vectors/*.json. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { afterClose, counted, delay, retryAfter, tokenDelay } from "../build/backoff.js";
import { setFrame } from "../build/choices.js";
import { parseId } from "../build/ids.js";
import { Interest } from "../build/interest.js";
import { Roster, unknown } from "../build/roster.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../../../spec/vectors/${name}.json`, import.meta.url), "utf8"));

test("ids are parsed as in spec/vectors", () => {
  for (const { value, id } of read("ids").cases) assert.equal(parseId(value) ?? null, id, JSON.stringify(value));
});

test("delays before a reconnect match spec/vectors", () => {
  for (const { failures, random, retry_after, wait } of read("backoff").cases) assert.equal(delay(failures, random, retry_after), wait);
  for (const { failures, wait } of read("backoff").tokens) assert.equal(tokenDelay(failures), wait);
});

test("close codes are handled as in spec/vectors", () => {
  const { cases, failures, reasons } = read("closes");
  for (const { code, verdict } of cases) assert.equal(afterClose(code), verdict, `${code}`);
  for (const { failures: before, verdict, counted: after } of failures) assert.equal(counted(before, verdict), after);
  for (const { reason, retry_after } of reasons) assert.equal(retryAfter(reason), retry_after, reason);
});

test("presence.set frames are encoded as in spec/vectors", () => {
  for (const { choice, frame } of read("choices").cases) assert.deepEqual(setFrame(choice, 0), frame);
});

for (const { name, steps } of read("known-statuses").stories) {
  test(`statuses are kept as in spec/vectors/known-statuses: ${name}`, () => {
    const roster = new Roster();
    for (const step of steps) {
      const changes = [happen(roster, step)].flat(1).filter(Boolean);
      const changed = step.age ? changes : changes.length ? [changes] : [];
      assert.deepEqual(changed.map(([now]) => now.user), step.changed);
      for (const [user, expected] of Object.entries(step.shown)) {
        const shown = roster.get(user) ?? unknown(user);
        for (const [field, value] of Object.entries(expected)) assert.deepEqual(shown[field], value, `${user}.${field}`);
      }
    }
  });
}

function happen(roster, { take, deny, lost, age, forget }) {
  if (take) return roster.take(take);
  if (deny) return roster.deny(...deny);
  if (lost) return roster.lost();
  if (age) return roster.age();
  return roster.forget(forget);
}

for (const { name, steps, size = 65_536, bulk = 1000 } of read("subscriptions").stories) {
  test(`subscriptions are sent as in spec/vectors/subscriptions: ${name}`, () => {
    const interest = new Interest();
    const asked = [];
    for (const step of steps) {
      if (step.want) interest.want(step.want);
      if (step.connect) interest.reset();
      if (step.again) interest.again(step.again);
      if ("answer" in step) {
        const again = interest.hear({ ...step.with, id: asked[step.answer] });
        assert.equal(again, step.with.type === "presence.error");
      }
      if (!step.frames) continue;
      const frames = interest.frames(size, bulk);
      for (const frame of frames) if (frame.type === "presence.subscribe") asked.push(frame.id);
      for (const frame of frames) assert.ok(new TextEncoder().encode(JSON.stringify(frame)).length <= size);
      assert.deepEqual(frames.map(({ id, ...frame }) => frame), step.frames);
    }
  });
}
