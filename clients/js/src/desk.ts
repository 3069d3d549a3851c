/**
 * Where the tabs' wishes meet: one link for all of them.
 *
 * A tab says all that it wants, again and again; the desk unites the wishes, passes on what the server says to everybody,
 * and tells a tab that comes later what the others already know. A tab that says nothing for a while is forgotten: if it
 * was only frozen, it will say what it wants when it thaws. With one tab there is a desk too; it has one visitor.
 */
import { denials, type Wants } from "./interest.js";
import { Link, type LinkOptions } from "./link.js";
import type { Frame, State } from "./types.js";

const FORGOTTEN = 300_000; // ms; the timers of a page in the background run once a minute

/** From a tab to the desk. */
export interface Wish {
  tab: string;
  /** Complete: it replaces what this tab wanted before. */
  wants?: Wants;
  /** Denied before, and asked for once more. */
  again?: string[];
  send?: Frame;
  /** What the link should do. */
  do?: "start" | "active" | "idle" | "wake";
  token?: string;
  leaves?: boolean;
}

/** From the desk to all tabs, or to one. */
export interface News {
  to?: string;
  state?: State;
  frames?: Frame[];
  error?: { code: string; message: string };
}

export class Desk {
  #tabs = new Map<string, { wants: Wants; at: number }>();
  /** The last word about each who is wanted: a status, or a denial. */
  #known = new Map<string, Frame>();
  #self: Frame | undefined;
  #state: State | undefined;
  #link: Link;
  #tell: (news: News) => void;

  constructor(url: string, options: LinkOptions, tell: (news: News) => void) {
    this.#tell = tell;
    this.#link = new Link(url, options, {
      frame: (frame) => this.#hear(frame),
      state: (state) => this.#tell({ state: (this.#state = state) }),
      error: (code, message) => this.#tell({ error: { code, message } }),
    });
  }

  take(wish: Wish): void {
    if (wish.wants) this.#wanted(wish.tab, wish.wants, wish.again);
    if (wish.send && !this.#link.send(wish.send) && wish.send.id) {
      this.#tell({ to: wish.tab, frames: [{ type: "presence.error", id: wish.send.id, code: "not_connected" }] });
    }
    if (wish.do) this.#link[wish.do](wish.token);
    if (wish.leaves && this.#tabs.delete(wish.tab)) this.#unite();
  }

  /** The desk goes elsewhere, or nobody needs it any more. */
  end(): void {
    this.#tell = () => {};
    this.#link.stop();
  }

  #wanted(tab: string, wants: Wants, again: string[] = []): void {
    const now = Date.now();
    const before = this.#tabs.get(tab);
    this.#tabs.set(tab, { wants, at: now });
    for (const [other, { at }] of this.#tabs) if (now - at > FORGOTTEN) this.#tabs.delete(other);
    this.#tell({ to: tab, state: this.#state, frames: this.#newTo(before?.wants, wants) });
    this.#unite(again);
  }

  /** What the others know already, and this tab does not. */
  #newTo(before: Wants | undefined, wants: Wants): Frame[] {
    const had = new Set(before?.users);
    const users = wants.contacts && !before?.contacts ? [...this.#known.keys()] : wants.users.filter((user) => !had.has(user));
    const frames = users.flatMap((user) => this.#known.get(user) ?? []);
    return before || !this.#self ? frames : [this.#self, ...frames];
  }

  #unite(again: string[] = []): void {
    const all = [...this.#tabs.values()].map(({ wants }) => wants);
    const users = new Set(all.flatMap((wants) => wants.users));
    const contacts = all.some((wants) => wants.contacts);
    if (!contacts) for (const user of this.#known.keys()) if (!users.has(user)) this.#known.delete(user);
    this.#link.want({ users: [...users], rooms: all.flatMap((wants) => wants.rooms), contacts }, again);
  }

  #hear(frame: Frame): void {
    if (frame.type === "presence.self") this.#self = frame;
    for (const status of statuses(frame)) this.#known.set(status.user_id, { type: "presence.status", ...status });
    for (const denial of denials(frame)) this.#known.set(denial.target_user_id, { ...denial, type: frame.type });
    this.#tell({ frames: [frame] });
  }
}

/** The statuses in a frame, without what belongs to the frame. */
export function statuses({ type, id, ...rest }: Frame): any[] {
  if (type === "presence.statuses") return rest.statuses;
  return type === "presence.status" ? [rest] : [];
}
