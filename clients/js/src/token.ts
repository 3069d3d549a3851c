/**
 * Reads the claims of a token without verifying it (the server does that), to avoid connecting with an expired one. Text is
 * not decoded from UTF-8: `sub` can be compared, but not displayed.
 */

export interface Claims {
  sub?: unknown;
  /** Epoch seconds. */
  exp?: number;
}

/** The claims of a JWT; empty if it cannot be parsed. */
export function claims(token: string): Claims {
  try {
    return JSON.parse(atob(token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/")));
  } catch {
    return {};
  }
}
