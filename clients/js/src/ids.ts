/**
 * The server's rule for ids (docs/protocol.md, "Ids"), so that an invalid id is found without a request.
 *
 * Nothing is normalised: two spellings that look alike must not become one user.
 */

const REFUSED = /[\p{Cc}\p{Cs}\p{Z},]/u;

/** The id as a string; undefined if it is invalid. */
export function parseId(value: unknown): string | undefined {
  const text = Number.isSafeInteger(value) ? String(value) : value;
  return typeof text === "string" &&
    text &&
    !REFUSED.test(text) &&
    text === text.normalize() &&
    new TextEncoder().encode(text).length <= 128
    ? text
    : undefined;
}
