/**
 * The data of the charts: points in time order, as columns. Pure.
 *
 * Between points more than two steps apart a point without values is inserted, so that the line has a gap there.
 */
import type { Point } from "./stats.js";

export const STEP = 2_000; // milliseconds that one point covers
export const KEPT = 900; // points: half an hour

export type Key = Exclude<keyof Point, "at">;
export type Column = (number | null)[];

/** Append `fresh` to `known`, replacing points of the same time or later; keeps the last `KEPT` points. */
export function merged(known: readonly Point[], fresh: readonly Point[]): Point[] {
  const first = fresh[0];
  if (first === undefined) return [...known];
  return [...known.filter((point) => point.at < first.at), ...fresh].slice(-KEPT);
}

/** The time of the last point in epoch ms; 0 if there is none. */
export function last(points: readonly Point[]): number {
  return points.at(-1)?.at ?? 0;
}

/** The times in epoch seconds, then one column for each key. */
export function columns(points: readonly Point[], keys: readonly Key[]): [number[], ...Column[]] {
  const times: number[] = [];
  const values: Column[] = keys.map(() => []);
  let before: number | null = null;
  for (const point of points) {
    if (before !== null && point.at - before > 2 * STEP) {
      times.push((before + STEP) / 1000);
      for (const column of values) column.push(null);
    }
    times.push(point.at / 1000);
    keys.forEach((key, index) => values[index]!.push(point[key]));
    before = point.at;
  }
  return [times, ...values];
}
