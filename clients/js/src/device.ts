/** Which device is this? The same one as last time, where the browser lets us remember. */

import { parseId } from "./ids.js";

const KEY = "herenow.device";

export function deviceId(): string {
  const fresh = random();
  try {
    // Reading the property is already refused in some privacy modes. Then we are a new device at every visit.
    const storage = globalThis.localStorage;
    const known = parseId(storage.getItem(KEY));
    if (known) return known;
    storage.setItem(KEY, fresh);
  } catch {}
  return fresh;
}

/** Not a secret: it need only differ from the others of the same user. */
export function random(): string {
  return Math.random().toString(36).slice(2);
}
