/** The modules of the dashboard. The page itself is tested in a browser. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { refusal } from "../build/dashboard/door.js";
import { columns, KEPT, last, merged, STEP } from "../build/dashboard/series.js";
import { count, duration, many, rate, short } from "../build/dashboard/words.js";

const point = (at, changes = 1) => ({ at, changes, p50: null });
const times = (points) => points.map((each) => each.at);

test("what is new follows what is known, each moment once", () => {
  const known = [point(2_000), point(4_000)];
  assert.deepEqual(times(merged(known, [point(4_000), point(6_000)])), [2_000, 4_000, 6_000]);
  assert.deepEqual(times(merged(known, [])), [2_000, 4_000]);
  assert.deepEqual(times(merged([], known)), [2_000, 4_000]);
  assert.equal(last(known), 4_000);
  assert.equal(last([]), 0);
});

test("a server whose time was set back begins anew", () => {
  assert.deepEqual(times(merged([point(20_000), point(22_000)], [point(8_000)])), [8_000]);
});

test("half an hour is kept and no more", () => {
  let points = [];
  for (let at = STEP; at <= (KEPT + 100) * STEP; at += STEP) points = merged(points, [point(at)]);
  assert.equal(points.length, KEPT);
  assert.equal(last(points), (KEPT + 100) * STEP);
});

test("where nothing is known the line breaks", () => {
  const [x, changes, p50] = columns([point(2_000, 5), point(4_000, 6), point(20_000, 7)], ["changes", "p50"]);
  assert.deepEqual(x, [2, 4, 6, 20]);
  assert.deepEqual(changes, [5, 6, null, 7]);
  assert.deepEqual(p50, [null, null, null, null]);
});

test("one moment that is missing is no break", () => {
  assert.deepEqual(columns([point(2_000, 5), point(6_000, 6)], ["changes"]), [[2, 6], [5, 6]]);
});

test("numbers as people read them", () => {
  const rows = [
    [count(1234567), "1\u202f234\u202f567"],
    [count(999), "999"],
    [short(12_345), "12.3k"],
    [short(2_500_000), "2.5M"],
    [short(0.5), "0.5"],
    [rate(0), "0"],
    [rate(0.04), "<0.1"],
    [rate(6.44), "6.4"],
    [rate(1234.4), "1\u202f234"],
    [duration(null), "–"],
    [duration(0.00123), "1.2 ms"],
    [duration(0.25), "250 ms"],
    [duration(2.34), "2.3 s"],
    [duration(42.4), "42 s"],
    [duration(150), "2 min"],
    [many(1, "row"), "1 row"],
    [many(2, "row"), "2 rows"],
  ];
  for (const [said, expected] of rows) assert.equal(said, expected);
});

test("why a token did not open the door", () => {
  assert.equal(refusal("token_missing"), "");
  assert.match(refusal("forbidden"), /scope service/);
  assert.match(refusal("token_expired"), /expired/);
  assert.match(refusal("token_malformed"), /secret of this server/);
});
