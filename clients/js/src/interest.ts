/**
 * Subscriptions: computes the frames that bring the server from the subscriptions sent so far to the wanted ones.
 *
 * Level-triggered: `want` takes the complete wanted set, `frames` returns the difference. On a new connection nothing has
 * been sent, so resubscribing is the same computation. Pure: no timer, no socket. Tested by spec/vectors/subscriptions.json.
 */
import type { Frame } from "./types.js";

export interface Wants {
  users: Iterable<string>;
  rooms: string[];
  contacts: boolean;
}

export class Interest {
  #users = new Set<string>();
  #rooms = new Set<string>();
  #contacts = false;
  /** Users in the subscribe frames of this connection. */
  #sent = new Set<string>();
  /**
   * No longer wanted, unsubscribe not sent yet. A user wanted again meanwhile is subscribed anew: the caller dropped the
   * known status and needs the server to send it again.
   */
  #leaving = new Set<string>();
  #sentRooms = new Set<string>();
  #sentContacts = false;
  /** Subscribe frames without a response: frame id → users in it, undefined for the contacts. */
  #asked = new Map<unknown, string[] | undefined>();
  #denied = new Map<string, string>();
  #number = 0;

  want(wants: Wants): void {
    this.#users = new Set(wants.users);
    this.#rooms = new Set(wants.rooms);
    this.#contacts = wants.contacts;
    for (const user of difference(this.#sent, this.#users)) {
      this.#sent.delete(user);
      this.#denied.delete(user);
      this.#leaving.add(user);
    }
  }

  /** Call this for each new connection: nothing has been sent on it. */
  reset(): void {
    for (const set of [this.#sent, this.#leaving, this.#sentRooms, this.#asked, this.#denied]) set.clear();
    this.#sentContacts = false;
  }

  /** Subscribe once more to those of `users` that the server denied. */
  again(users: string[]): void {
    for (const user of users) if (this.#denied.delete(user)) this.#sent.delete(user);
  }

  /** The frames to send now; they count as sent. `size`: the server's largest frame in bytes; `bulk`: users in one frame. */
  frames(size: number, bulk: number): Frame[] {
    const frames: Frame[] = [];
    if (this.#contacts !== this.#sentContacts) {
      this.#sentContacts = this.#contacts;
      frames.push(this.#contacts ? this.#ask({ contacts: true }) : { type: "presence.unsubscribe", contacts: true });
      // Unsubscribing from contacts may also end subscriptions by user id: send those again.
      if (!this.#contacts) this.#sent.clear();
    }
    // Unsubscribing a user who is also a contact would remove the user from the contacts subscription: wait until that ends.
    const left = this.#contacts ? [] : difference(this.#leaving, this.#users);
    for (const users of chunks(left, size, bulk)) frames.push({ type: "presence.unsubscribe", target_user_ids: users });
    if (!this.#contacts) this.#leaving.clear();
    if (left.length) this.again([...this.#denied].filter(([, why]) => why === "too_many_subscriptions").map(([user]) => user));
    for (const users of chunks(difference(this.#users, this.#sent), size, bulk)) {
      for (const user of users) this.#sent.add(user);
      frames.push(this.#ask({ target_user_ids: users }, users));
    }
    for (const room of difference(this.#sentRooms, this.#rooms)) frames.push({ type: "room.close", room });
    for (const room of difference(this.#rooms, this.#sentRooms)) frames.push({ type: "room.open", room });
    this.#sentRooms = new Set(this.#rooms);
    return frames;
  }

  /** Process any frame of the server. True if it refused a subscribe frame; the next `frames` sends that one again. */
  hear(frame: Frame): boolean {
    for (const { target_user_id, reason } of denials(frame)) this.#denied.set(target_user_id, reason);
    if (!this.#asked.has(frame.id)) return false;
    const users = this.#asked.get(frame.id);
    this.#asked.delete(frame.id);
    if (frame.type !== "presence.error") return false;
    if (users) for (const user of users) this.#sent.delete(user);
    else this.#sentContacts = false;
    return true;
  }

  #ask(what: object, users?: string[]): Frame {
    const id = "w" + ++this.#number;
    this.#asked.set(id, users);
    return { type: "presence.subscribe", ...what, id };
  }
}

export function denials(frame: Frame): { target_user_id: string; reason: string }[] {
  if (frame.type !== "presence.subscribe.denied") return [];
  return frame.denied ?? [frame];
}

function difference(some: Set<string>, without: Set<string>): string[] {
  return [...some].filter((each) => !without.has(each));
}

/** Split `ids` into lists of at most `bulk` that fit a frame of `size` bytes, at up to 3 bytes per UTF-16 unit plus quotes and comma. */
function chunks(ids: string[], size: number, bulk: number): string[][] {
  const lists: string[][] = [];
  let list: string[] = [];
  let room = 0;
  for (const id of ids) {
    room -= id.length * 3 + 3;
    if (room < 0 || list.length >= bulk) {
      lists.push((list = []));
      room = size - 200 - id.length * 3;
    }
    list.push(id);
  }
  return lists;
}
