/**
 * What is drawn: points in the order of time, as columns. Pure.
 *
 * Where nothing is known nothing is drawn: between points that are further apart than two steps stands a point without
 * values, so that a line breaks instead of pretending.
 */
import type { Point } from "./stats.js";

export const STEP = 2_000; // milliseconds that a point is about
export const KEPT = 900; // points: half an hour

export type Key = Exclude<keyof Point, "at">;
export type Column = (number | null)[];

/** The newest of each moment, no more than are kept. A server that was set back in time begins anew. */
export function merged(known: readonly Point[], fresh: readonly Point[]): Point[] {
  const first = fresh[0];
  if (first === undefined) return [...known];
  return [...known.filter((point) => point.at < first.at), ...fresh].slice(-KEPT);
}

/** When the last known one was; 0: none is. */
export function last(points: readonly Point[]): number {
  return points.at(-1)?.at ?? 0;
}

/** Seconds, then one column for each key. */
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
