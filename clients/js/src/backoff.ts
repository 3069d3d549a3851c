/**
 * Whether to reconnect after a close, and how long to wait. Pure; tested by spec/vectors/backoff.json and closes.json.
 *
 * Full jitter: a random delay below a bound that doubles, so that clients that lost the same node do not reconnect at the
 * same moment. A wait that the server requests is added. The floor prevents a busy loop when the random delay is near zero.
 */

const FIRST = 2_000; // ms: the first bound
const LAST = 30_000; // ms: the largest bound
const FLOOR = 100; // ms: the shortest delay
const SLOWLY = 4; // failures from which on the bound is LAST

/** Milliseconds to wait before the next attempt after `failures` failed ones; `random` is in [0, 1). */
export function delay(failures: number, random: number, retryAfter = 0): number {
  return Math.max(FLOOR, retryAfter + Math.floor(random * Math.min(LAST, FIRST * 2 ** failures)));
}

/** Milliseconds to wait before the next token request after `failures` failed ones in a row, at least 1. */
export function tokenDelay(failures: number): number {
  return Math.min(LAST, 500 * 2 ** failures);
}

export type Verdict = "retry" | "slowly" | "token" | "stop";

const VERDICTS: Record<number, Verdict> = { 1000: "stop", 4400: "stop", 4401: "token", 4403: "stop", 4409: "stop", 4429: "slowly" };

/**
 * How to react to a close code. `slowly`: retry with the largest bound, as after many failures. `token`: retry with another
 * token than the refused one. `stop`: do not reconnect automatically.
 */
export function afterClose(code: number): Verdict {
  return VERDICTS[code] ?? "retry";
}

/** The number of failures after a close; `slowly` raises it to `SLOWLY`. */
export function counted(failures: number, verdict: Verdict): number {
  return verdict === "slowly" ? Math.max(failures, SLOWLY) : failures;
}

/** Milliseconds to wait as requested in a close reason (`retry_after_ms=…`), at most an hour; 0 if absent. */
export function retryAfter(reason: string): number {
  return Math.min(+(/retry_after_ms=(\d+)/.exec(reason)?.[1] ?? 0), 3_600_000);
}
