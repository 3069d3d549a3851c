/**
 * The leading tab's side of tab sharing: one link for all tabs.
 *
 * Every tab sends its complete subscriptions repeatedly. The desk subscribes to their union, forwards server frames to all
 * tabs, and sends a new tab what is already known. A tab that sends nothing for `FORGOTTEN` ms is dropped; if it was only
 * frozen, it sends its subscriptions again when it resumes. A single tab uses a desk too.
 */
import { now } from "./clock.js";
import { denials, type Wants } from "./interest.js";
import { Link, type LinkOptions } from "./link.js";
import { FORGOTTEN } from "./timing.js";
import type { Frame, State } from "./types.js";


/** A message from a tab to the desk. */
export interface Wish {
  tab: string;
  /** The complete subscriptions of this tab, replacing earlier ones. Null: the tab leaves. */
  wants?: Wants | null;
  /** Denied users to subscribe to once more. */
  again?: string[];
  send?: Frame;
  /** A method of the link to call. */
  do?: "start" | "active" | "idle" | "wake";
  token?: string;
}

/** A message from the desk to one tab (`to`) or all tabs. */
export interface News {
  to?: string;
  state?: State;
  frames?: Frame[];
}

export class Desk {
  #tabs = new Map<string, { wants: Wants; at: number }>();
  /** Subscribed user → the last status or denial frame. */
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

  /** Stop the link: another tab leads now, or the client is closed. */
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

  /** Frames already known that this tab does not have yet; flagged stale while there is no connection. */
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

  /** Keep the frame only while a tab wants the user; otherwise it would become outdated here. */
  #know(user: string, frame: Frame): void {
    if (this.#all?.contacts || this.#all?.users.has(user)) this.#known.set(user, frame);
    else this.#known.delete(user);
  }
}

/** The statuses in a frame, without the frame's own fields. */
export function statuses({ type, id, ...rest }: Frame): any[] {
  if (type === "presence.statuses") return rest.statuses;
  return type === "presence.status" ? [rest] : [];
}
