/**
 * Requests tokens, and reads their claims without verifying them (the server does that): to avoid connecting with an expired
 * token, and to tell a token from a proxy's error page. Text is not decoded from UTF-8: `sub` can be compared, but not displayed.
 */
import { ANSWER } from "./timing.js";
import type { TokenSource } from "./types.js";

export interface Claims {
  sub?: unknown;
  /** Epoch seconds. */
  exp?: number;
}

/** The claims of a JWT; empty if it cannot be parsed. */
export function claims(token: string): Claims {
  try {
    return JSON.parse(atob(token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/"))) ?? {};
  } catch {
    return {};
  }
}

/**
 * A function that requests a token. Its promise resolves to a falsy value if no user is signed in, and rejects if the endpoint
 * or function fails, does not answer in time or answers something that is not a JWT. A fixed token is not checked: a retry
 * would not change it.
 */
export function requester(source: TokenSource): () => Promise<string | null | undefined> {
  return async () => {
    if (typeof source === "string" && !source.includes("/")) return source; // a JWT has no slash
    const limit = AbortSignal.timeout?.(ANSWER); // Safari 15 has none
    const late = new Promise<never>((_, reject) => limit && (limit.onabort = () => reject(limit.reason)));
    // `async`: a function that throws must not leave `late` without a handler, whose rejection the page would report.
    const asked = typeof source === "string" ? fetchToken(source, limit) : (async () => source())();
    const token = (await Promise.race([asked, late]))?.trim();
    if (token && claims(token).sub === undefined) throw new Error("not a JWT");
    return token;
  };
}

/** Request a token from the application's endpoint; undefined if it answers that no user is signed in. */
async function fetchToken(address: string, signal: AbortSignal): Promise<string | undefined> {
  const answer = await fetch(address, { cache: "no-store", signal });
  const { status } = answer;
  if (status === 204 || status === 401) return;
  const text = (await answer.text()).trim();
  if (!answer.ok || !text) throw new Error(address + " answered " + status);
  try {
    const said = JSON.parse(text);
    return said.token ?? said;
  } catch {
    return text;
  }
}
