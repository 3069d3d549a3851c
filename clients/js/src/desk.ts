/**
 * Where the tabs' wishes meet: one link for all of them.
 *
 * A tab says all that it wants, again and again; the desk unites the wishes, passes on what the server says to everybody,
 * and tells a tab that comes later what the others already know. A tab that says nothing for a while is forgotten: if it
 * was only frozen, it will say what it wants when it thaws. With one tab there is a desk too; it has one visitor.
 */
import { now } from "./clock.js";
import { denials, type Wants } from "./interest.js";
import { Link, type LinkOptions } from "./link.js";
import { FORGOTTEN } from "./timing.js";
import type { Frame, State } from "./types.js";


/** From a tab to the desk. */
export interface Wish {
  tab: string;
  /** Complete: it replaces what this tab wanted before. Null: it leaves. */
  wants?: Wants | null;
  /** Denied before, and asked for once more. */
  again?: string[];
  send?: Frame;
  /** What the link should do. */
  do?: "start" | "active" | "idle" | "wake";
  token?: string;
}

/** From the desk to all tabs, or to one. */
export interface News {
  to?: string;
  state?: State;
  frames?: Frame[];
}

export class Desk {
  #tabs = new Map<string, { wants: Wants; at: number }>();
  /** The last word about each who is wanted: a status, or a denial. */
  #known = new Map<string, Frame>();
  #all: Wants & { users: Set<string> } | undefined;
  #self: Frame | undefined;
  #state: State | undefined;
  #link: Link;
  #tell: (news: News) => void;

  constructor(url: string, options: LinkOptions, tell: (news: News) => void) {
    this.#tell = tell;
    this.#link = new Link(url, options, (said) => {
      this.#state = said.state ?? this.#state;
      for (const frame of said.frames ?? []) this.#hear(frame);
      this.#tell(said);
    });
  }

  take(wish: Wish): void {
    if (wish.wants) this.#wanted(wish.tab, wish.wants, wish.again);
    if (wish.send) this.#link.send(wish.send);
    if (wish.do) this.#link[wish.do](wish.token);
    if (wish.wants === null && this.#tabs.delete(wish.tab)) this.#unite();
  }

  /** The desk goes elsewhere, or nobody needs it any more. */
  end(): void {
    this.#tell = () => {};
    this.#link.stop();
  }

  #wanted(tab: string, wants: Wants, again: string[] = []): void {
    const before = this.#tabs.get(tab);
    this.#tabs.set(tab, { wants, at: now() });
    for (const [other, { at }] of this.#tabs) if (now() - at > FORGOTTEN) this.#tabs.delete(other);
    this.#tell({ to: tab, state: this.#state, frames: this.#newTo(before?.wants, wants) });
    this.#unite(again);
  }

  /** What the others know already, and this tab does not. Without a connection, that is what was known. */
  #newTo(before: Wants | undefined, wants: Wants): Frame[] {
    const had = new Set(before?.users);
    const users = wants.contacts && !before?.contacts ? this.#known.keys() : wants.users;
    const stale = this.#state?.phase !== "connected" && { stale: true };
    const frames = before || !this.#self ? [] : [this.#self];
    for (const user of users) {
      const frame = this.#known.get(user);
      if (frame && !had.has(user)) frames.push({ ...frame, ...stale });
    }
    return frames;
  }

  #unite(again: string[] = []): void {
    const all = [...this.#tabs.values()].map(({ wants }) => wants);
    this.#all = {
      users: new Set(all.flatMap((wants) => [...wants.users])),
      rooms: all.flatMap((wants) => wants.rooms),
      contacts: all.some((wants) => wants.contacts),
    };
    for (const [user, frame] of this.#known) this.#know(user, frame);
    this.#link.want(this.#all, again);
  }

  #hear(frame: Frame): void {
    if (frame.type === "presence.self") this.#self = frame;
    for (const status of statuses(frame)) this.#know(status.user_id, { type: "presence.status", ...status });
    for (const denial of denials(frame)) this.#know(denial.target_user_id, { ...denial, type: frame.type });
  }

  /** An answer may come when nobody wants it any more: then it would grow old here. */
  #know(user: string, frame: Frame): void {
    if (this.#all?.contacts || this.#all?.users.has(user)) this.#known.set(user, frame);
    else this.#known.delete(user);
  }
}

/** The statuses in a frame, without what belongs to the frame. */
export function statuses({ type, id, ...rest }: Frame): any[] {
  if (type === "presence.statuses") return rest.statuses;
  return type === "presence.status" ? [rest] : [];
}
