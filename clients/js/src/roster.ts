/**
 * The last known presence of each user, and whether it is stale.
 *
 * Within one connection the presence with the later `as_of` wins. The next connection may lead to another node whose clock
 * is slightly behind: there the first presence that is not stale replaces the one of the previous connection whatever its
 * `as_of`; a stale one must be newer. Pure: no timer, no socket. Tested by spec/vectors/known-statuses.json.
 */
import { camel } from "./spelling.js";
import type { Presence, WireStatus } from "./types.js";

interface Entry {
  shown: Presence;
  /** The number of the connection that it came from. */
  connection: number;
}

export type Change = [now: Presence, before: Presence | undefined];

export class Roster {
  #entries = new Map<string, Entry>();
  #connection = 0;

  get(user: string): Presence | undefined {
    return this.#entries.get(user)?.shown;
  }

  users(): Iterable<string> {
    return this.#entries.keys();
  }

  /** Merge a presence from the server. Returns the change to report; undefined if nothing visible changed. */
  take(said: WireStatus): Change | undefined {
    const known = this.#entries.get(said.user_id);
    const carried = known && known.connection !== this.#connection;
    if (known && said.as_of < known.shown.asOf && !(carried && !said.stale)) return;
    return this.#put({ stale: false, ...camel(said) });
  }

  /** Record a refused subscription. `not_mutual_followers` is shown as offline, as REST does; others as unknown. */
  deny(user: string, reason: string): Change | undefined {
    return this.#put({ ...unknown(user), status: reason === "not_mutual_followers" ? "offline" : "unknown", denied: reason });
  }

  /** Call this when a connection ends: its presences are kept until the next connection sends newer ones. */
  lost(): void {
    this.#connection++;
  }

  /** Flag all presences of ended connections as stale; returns the changes. */
  age(): Change[] {
    const changes: Change[] = [];
    for (const entry of this.#entries.values()) {
      const before = entry.shown;
      if (entry.connection === this.#connection || before.stale) continue;
      entry.shown = { ...before, stale: true };
      changes.push([entry.shown, before]);
    }
    return changes;
  }

  forget(user: string): void {
    this.#entries.delete(user);
  }

  #put(shown: Presence): Change | undefined {
    const before = this.get(shown.user);
    this.#entries.set(shown.user, { shown, connection: this.#connection });
    return before && alike({ ...before, asOf: 0 }, { ...shown, asOf: 0 }) ? undefined : [shown, before];
  }
}

/** The presence of a user about whom nothing is known. */
export function unknown(user: string): Presence {
  return { user, status: "unknown", since: null, lastSeen: null, custom: null, platforms: [], asOf: 0, stale: false };
}

export function alike(one: object, other: object): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
