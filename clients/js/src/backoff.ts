/**
 * When to come back, and whether at all. Pure; the rules are rows in spec/vectors/backoff.json and closes.json.
 *
 * Full jitter: a random moment below a bound that doubles, so that those who lost their node together do not return
 * together. A time that the server asks for comes before that. The floor keeps a lucky zero from being a busy loop.
 */

const FIRST = 2_000; // ms: the first bound
const LAST = 30_000; // ms: the bound grows no further
const FLOOR = 100; // ms
const SLOWLY = 4; // doublings after which the bound is LAST

/** Milliseconds to wait before the try after `failures` of them; `random` is from [0, 1). */
export function delay(failures: number, random: number, retryAfter = 0): number {
  return Math.max(FLOOR, retryAfter + Math.floor(random * Math.min(LAST, FIRST * 2 ** failures)));
}

export type Verdict = "retry" | "slowly" | "token" | "stop";

const VERDICTS: Record<number, Verdict> = { 1000: "stop", 4400: "stop", 4401: "token", 4409: "stop", 4429: "slowly" };

/** `slowly`: as after many failures. `token`: with a token that is not the refused one. `stop`: not by itself. */
export function afterClose(code: number): Verdict {
  return VERDICTS[code] ?? "retry";
}

/** The failures to count after a close: `slowly` jumps ahead. */
export function counted(failures: number, verdict: Verdict): number {
  return verdict === "slowly" ? Math.max(failures, SLOWLY) : failures;
}

/** Milliseconds that the reason of a close asks for; at most an hour. */
export function retryAfter(reason: string): number {
  return Math.min(+(/retry_after_ms=(\d+)/.exec(reason)?.[1] ?? 0), 3_600_000);
}
