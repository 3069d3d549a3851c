/**
 * Whom do we watch? The difference between what is wanted and what the server was told, as frames.
 *
 * Level-triggered: whoever wants something else says all of what they want, and `frames` answers with what is left to
 * say. A new connection has been told nothing, so resubscribing is the same difference. Pure: no timer, no socket.
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
  #told = new Set<string>();
  /** No longer wanted, and the server does not know yet. Who is wanted again meanwhile needs a new answer. */
  #leaving = new Set<string>();
  #toldRooms = new Set<string>();
  #toldContacts = false;
  /** Frames that have no answer yet, and whom they named; undefined: the contacts. */
  #asked = new Map<unknown, string[] | undefined>();
  #denied = new Map<string, string>();
  #number = 0;

  want(wants: Wants): void {
    this.#users = new Set(wants.users);
    this.#rooms = new Set(wants.rooms);
    this.#contacts = wants.contacts;
    for (const user of difference(this.#told, this.#users)) {
      this.#told.delete(user);
      this.#denied.delete(user);
      this.#leaving.add(user);
    }
  }

  /** A new connection. */
  reset(): void {
    for (const told of [this.#told, this.#leaving, this.#toldRooms, this.#asked, this.#denied]) told.clear();
    this.#toldContacts = false;
  }

  /** Those who were denied are asked for once more. */
  again(users: string[]): void {
    for (const user of users) if (this.#denied.delete(user)) this.#told.delete(user);
  }

  /** What is left to say; `size` is the largest frame the server takes, in bytes. */
  frames(size: number): Frame[] {
    const frames: Frame[] = [];
    if (this.#contacts !== this.#toldContacts) {
      this.#toldContacts = this.#contacts;
      frames.push(this.#contacts ? this.#ask({ contacts: true }) : { type: "presence.unsubscribe", contacts: true });
      // Leaving the contacts may take along people who are wanted by name.
      if (!this.#contacts) this.#told.clear();
    }
    // Who is watched by name and is a contact too would be lost to the contacts: they are left together.
    const left = this.#contacts ? [] : difference(this.#leaving, this.#users);
    for (const users of chunks(left, size)) frames.push({ type: "presence.unsubscribe", target_user_ids: users });
    if (!this.#contacts) this.#leaving.clear();
    if (left.length) this.again([...this.#denied].filter(([, why]) => why === "too_many_subscriptions").map(([user]) => user));
    for (const users of chunks(difference(this.#users, this.#told), size)) {
      for (const user of users) this.#told.add(user);
      frames.push(this.#ask({ target_user_ids: users }, users));
    }
    for (const room of difference(this.#toldRooms, this.#rooms)) frames.push({ type: "room.close", room });
    for (const room of difference(this.#rooms, this.#toldRooms)) frames.push({ type: "room.open", room });
    this.#toldRooms = new Set(this.#rooms);
    return frames;
  }

  /** Every frame of the server comes by here; true: a question failed and `frames` will ask it again. */
  hear(frame: Frame): boolean {
    for (const { target_user_id, reason } of denials(frame)) this.#denied.set(target_user_id, reason);
    if (!this.#asked.has(frame.id)) return false;
    const users = this.#asked.get(frame.id);
    this.#asked.delete(frame.id);
    if (frame.type !== "presence.error") return false;
    if (users) for (const user of users) this.#told.delete(user);
    else this.#toldContacts = false;
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

/** Lists that fit into a frame, whatever characters there are: at most three bytes each, and quotes and a comma. */
function chunks(ids: string[], size: number): string[][] {
  const lists: string[][] = [];
  let list: string[] = [];
  let room = 0;
  for (const id of ids) {
    room -= id.length * 3 + 3;
    if (room < 0) {
      lists.push((list = []));
      room = size - 200 - id.length * 3;
    }
    list.push(id);
  }
  return lists;
}
