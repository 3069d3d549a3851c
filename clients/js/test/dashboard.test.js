/** The modules of the dashboard. The page itself is tested in a browser. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { refusal } from "../build/dashboard/door.js";
import { columns, KEPT, last, merged, STEP } from "../build/dashboard/series.js";
import { count, duration, many, rate, short } from "../build/dashboard/words.js";

const point = (at, changes = 1) => ({ at, changes, p50: null });
const times = (points) => points.map((each) => each.at);

test("merged() appends new chart points and keeps one point per time", () => {
  const known = [point(2_000), point(4_000)];
  assert.deepEqual(times(merged(known, [point(4_000), point(6_000)])), [2_000, 4_000, 6_000]);
  assert.deepEqual(times(merged(known, [])), [2_000, 4_000]);
  assert.deepEqual(times(merged([], known)), [2_000, 4_000]);
  assert.equal(last(known), 4_000);
  assert.equal(last([]), 0);
});

test("merged() starts the chart again when the server's clock was set back", () => {
  assert.deepEqual(times(merged([point(20_000), point(22_000)], [point(8_000)])), [8_000]);
});

test("merged() keeps the chart points of the last half hour", () => {
  let points = [];
  for (let at = STEP; at <= (KEPT + 100) * STEP; at += STEP) points = merged(points, [point(at)]);
  assert.equal(points.length, KEPT);
  assert.equal(last(points), (KEPT + 100) * STEP);
});

test("columns() breaks the chart line where points are missing", () => {
  const [x, changes, p50] = columns([point(2_000, 5), point(4_000, 6), point(20_000, 7)], ["changes", "p50"]);
  assert.deepEqual(x, [2, 4, 6, 20]);
  assert.deepEqual(changes, [5, 6, null, 7]);
  assert.deepEqual(p50, [null, null, null, null]);
});

test("columns() does not break the chart line when one point is missing", () => {
  assert.deepEqual(columns([point(2_000, 5), point(6_000, 6)], ["changes"]), [[2, 6], [5, 6]]);
});

test("numbers and durations of the dashboard are formatted for reading", () => {
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

test("refusal() explains why the server refused a dashboard token", () => {
  assert.equal(refusal("token_missing"), "");
  assert.match(refusal("forbidden"), /scope read/);
  assert.match(refusal("scope_missing"), /lacks the scope read/);
  assert.match(refusal("token_expired"), /expired/);
  assert.match(refusal("token_malformed"), /secret of this server/);
});
