/**
 * Detects user activity on a page: keys, pointers, wheels, and the page becoming visible. Does nothing outside a page (Node,
 * a worker).
 */
import { now } from "./clock.js";
import { EVERY } from "./timing.js";

/**
 * Calls `active` at most every `EVERY` ms of activity, `woken` when the page or the network comes back, and `left` when the
 * page is unloaded (it may return from the browser's cache). Returns a function that removes the listeners.
 */
export function follow(active: () => unknown, woken: () => void, left: () => void): () => void {
  const page = globalThis.document;
  const ends = new AbortController();
  let next = 0;
  const acted = () => {
    if (now() < next) return;
    next = now() + EVERY;
    active();
  };
  const shown = () => {
    if (page.hidden) return;
    acted();
    woken();
  };
  const on = (events: string, then: () => void) => {
    for (const event of events.split(" ")) addEventListener(event, then, { passive: true, capture: true, signal: ends.signal });
  };
  if (page) {
    on("pointerdown pointermove keydown wheel", acted);
    on("visibilitychange", shown);
    on("online pageshow", woken);
    on("pagehide", left);
  }
  return () => ends.abort();
}
