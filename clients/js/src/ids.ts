/**
 * What may be an id? The server's rule (docs/protocol.md, "Ids"), so that a mistake is found without asking it.
 *
 * Nothing is repaired: two spellings that look alike must not become one person.
 */

const REFUSED = /[\p{Cc}\p{Cs}\p{Z},]/u;

/** The id as a string; undefined: it is none. */
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
