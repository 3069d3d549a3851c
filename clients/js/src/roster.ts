/**
 * What is known of each person: the newest value, and whether it is still known to be true.
 *
 * Presence is state, not a log, so merging is a rule about two values: the one with the later `as_of` stays. That holds
 * within one connection, whose server never goes back. The next connection may lead to another node, whose clock is a
 * little behind: its first fresh word replaces what was carried over, whatever the stamps say; only a word that is stale
 * itself has to be newer. Pure: no timer, no socket. The rules are rows in spec/vectors/roster.json.
 */
import { camel } from "./spelling.js";
import type { Presence, WireStatus } from "./types.js";

interface Entry {
  shown: Presence;
  /** The number of the connection that said it. */
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

  /** The server said this; answers with what changed for who looks, if anything did. */
  take(said: WireStatus): Change | undefined {
    const known = this.#entries.get(said.user_id);
    const carried = known && known.connection !== this.#connection;
    if (known && said.as_of < known.shown.asOf && !(carried && !said.stale)) return;
    return this.#put({ stale: false, ...camel(said) });
  }

  /** The server would not say. Without a relation that looks like offline, as it does by REST. */
  deny(user: string, reason: string): Change | undefined {
    return this.#put({ ...unknown(user), status: reason === "not_mutual_followers" ? "offline" : "unknown", denied: reason });
  }

  /** The connection is gone: what it said is carried over until the next one speaks. */
  lost(): void {
    this.#connection++;
  }

  /** It has been gone for long enough that what it said must be called stale. */
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

/** What is shown of somebody of whom nothing is known. */
export function unknown(user: string): Presence {
  return { user, status: "unknown", since: null, lastSeen: null, custom: null, platforms: [], asOf: 0, stale: false };
}

export function alike(one: object, other: object): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
