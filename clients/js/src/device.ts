/** The device id, kept in `localStorage` where the browser allows it. */

import { parseId } from "./ids.js";

const KEY = "herenow.device";

export function deviceId(): string {
  const fresh = random();
  try {
    // In some privacy modes even reading the property throws. Then every visit is a new device.
    const storage = globalThis.localStorage;
    const known = parseId(storage.getItem(KEY));
    if (known) return known;
    storage.setItem(KEY, fresh);
  } catch {}
  return fresh;
}

/** A random id. It need not be secret, only differ from the other ids of the same user. */
export function random(): string {
  return Math.random().toString(36).slice(2);
}
