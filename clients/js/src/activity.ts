/**
 * What does the person at this page do? Real events, a few seconds apart: keys, pointers, wheels, a page that comes to
 * the front. What is not a page (Node, a worker) has none of them.
 */

const EVERY = 5_000; // ms: more often tells nobody anything
const EVENTS = ["pointerdown", "pointermove", "keydown", "wheel"];

/** `left` is called when the page goes, perhaps to come back. */
export function follow(active: () => unknown, woken: () => void, left: () => void): () => void {
  const page = globalThis.document;
  if (!page) return () => {};
  let last = 0;
  const acted = () => {
    const now = Date.now();
    if (now - last < EVERY) return;
    last = now;
    active();
  };
  const shown = () => {
    if (page.hidden) return;
    acted();
    woken();
  };
  const ends = new AbortController();
  const how = { passive: true, capture: true, signal: ends.signal };
  for (const event of EVENTS) addEventListener(event, acted, how);
  page.addEventListener("visibilitychange", shown, how);
  for (const event of ["online", "pageshow"]) addEventListener(event, woken, how);
  addEventListener("pagehide", left, how);
  return () => ends.abort();
}
