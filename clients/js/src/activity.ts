/**
 * What does the person at this page do? Real events, a few seconds apart: keys, pointers, wheels, a page that comes to
 * the front. What is not a page (Node, a worker) has none of them.
 */
import { now } from "./clock.js";
import { EVERY } from "./timing.js";

/** `left` is called when the page goes, perhaps to come back. */
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
