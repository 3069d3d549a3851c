/**
 * What an application holds in its hand: watch people, say how one is, see who types.
 *
 * It keeps what this page wants and knows; how that reaches the server, through this tab's socket or another's, is the
 * business of `desk` and `tabs`. Callbacks get state, never a queue: what changed, and what it was before.
 */
import { follow } from "./activity.js";
import { setFrame } from "./choices.js";
import { Desk, statuses, type News, type Wish } from "./desk.js";
import { deviceId, random } from "./device.js";
import { HerenowError } from "./errors.js";
import { parseId } from "./ids.js";
import { denials } from "./interest.js";
import type { LinkOptions } from "./link.js";
import { alike, Roster, unknown, type Change } from "./roster.js";
import { camel } from "./spelling.js";
import { tabs, type Tabs } from "./tabs.js";
import { Timers } from "./timers.js";
import { ANSWER, BATCH, KNOCK, LINGER, SILENCE, STALE, TYPING } from "./timing.js";
import { claims } from "./token.js";
import type { Choice, Frame, Id, Me, Options, Place, Presence, State, Typing } from "./types.js";


export type Watcher = (now: Presence, before: Presence | undefined) => void;
export type Stop = () => void;

export class Herenow {
  /** One's own presence. */
  readonly me = {
    /** The last the server said; undefined before it did. */
    get: (): Me | undefined => this.#me,
    on: (listener: (me: Me) => void): Stop => this.#add(this.#onMe, listener),
    /** Resolves when the server has it. A refusal need not be caught to be harmless. */
    set: (choice: Choice): Promise<void> => this.#set(choice),
    /** No mode but what the devices say; the custom status stays. */
    auto: (): Promise<void> => this.#set({ mode: "auto" }),
    /** No custom status; the mode stays. */
    clear: (): Promise<void> => this.#set({ text: null }),
  };

  #url: string;
  #link: LinkOptions;
  #tab = random();
  #roster = new Roster();
  #state: State = { phase: "connecting" };
  #me: Me | undefined;
  #share: boolean;
  /** Whose token it was, last time. */
  #sub: unknown;
  #token: string | undefined;

  #watchers = new Map<string, Set<Watcher>>();
  #everybody = new Set<Watcher>();
  #open = new Set<{ room: string }>();
  #again: string[] = [];
  #onState = new Set<(state: State) => void>();
  #onMe = new Set<(me: Me) => void>();
  #onTyping = new Set<(typing: Typing) => void>();
  #onError = new Set<(error: HerenowError) => void>();

  #desk: Desk | undefined;
  #tabs: Tabs | undefined;
  #closed = false;
  #turn = 0;
  /** Choices without an answer. */
  #waiting = new Map<string, [Frame, () => void, (error: HerenowError) => void]>();
  #timers = new Timers();
  #unfollow: Stop;

  constructor(url: string, options: Options) {
    const address = new URL(url, globalThis.location?.href);
    address.protocol = address.protocol.replace("http", "ws");
    address.searchParams.set("device_id", String(options.deviceId ?? deviceId()));
    address.searchParams.set("platform", options.platform ?? "web");
    this.#url = address.href;
    const { token, WebSocket } = options;
    this.#link = { token: () => (typeof token === "string" ? token : token()), WebSocket };
    this.#unfollow = follow(
      () => options.activity === false || this.active(),
      () => {
        this.#wish({ do: "wake" });
        this.#knock(); // also after a page that had left comes back out of the browser's cache
      },
      () => this.#leave(),
    );
    this.#share = options.shareTabs !== false;
    void this.#start();
  }

  get state(): State {
    return this.#state;
  }

  onState(listener: (state: State) => void): Stop {
    return this.#add(this.#onState, listener);
  }

  onError(listener: (error: HerenowError) => void): Stop {
    return this.#add(this.#onError, listener);
  }

  /** What is known of somebody now; `unknown` if they are not watched, or nothing has come yet. */
  get(user: Id): Presence {
    return this.#roster.get(String(user)) ?? unknown(String(user));
  }

  /**
   * Be told of these people, at once if something is known and then whenever it changes. Any number of watchers share
   * one subscription. Watching somebody who was denied asks for them once more.
   */
  watch(users: Iterable<Id>, watcher: Watcher): Stop {
    const own: Watcher = (now, before) => watcher(now, before); // the same function may watch twice
    const ids = [...new Set([...users].map((user) => this.#watch(user, own)))];
    this.#wantSoon();
    return () => {
      for (const id of ids) if (this.#watchers.get(id)?.delete(own)) this.#timers.in(LINGER, "forget", () => this.#forget());
    };
  }

  /** Be told of everybody one may see, also of those who come later. */
  watchContacts(watcher: Watcher): Stop {
    const own: Watcher = (now, before) => watcher(now, before);
    this.#everybody.add(own);
    for (const user of this.#roster.users()) emit([own], this.get(user), undefined);
    this.#wantSoon();
    return () => {
      if (this.#everybody.delete(own)) this.#timers.in(LINGER, "forget", () => this.#forget());
    };
  }

  /** Hear who types in a room one is a member of. */
  open(room: Id): Stop {
    const own = { room: String(room) };
    this.#open.add(own);
    this.#wantSoon();
    return () => {
      if (this.#open.delete(own)) this.#wantSoon();
    };
  }

  /** Call it with every key; it says so as often as needed. `typing: false`: the message was sent, or deleted. */
  typing(where: Place & { typing?: boolean }): void {
    const { typing = true, ...place } = where;
    const key = JSON.stringify(place);
    if (typing && this.#timers.has(key)) return;
    typing ? this.#timers.in(TYPING, key, () => {}) : this.#timers.cancel(key);
    this.#wish({ send: { type: "presence.typing", ...place, ...(!typing && { typing }) } });
  }

  onTyping(listener: (typing: Typing) => void): Stop {
    return this.#add(this.#onTyping, listener);
  }

  /** The person did something. Pages notice that by themselves. */
  active(): void {
    this.#wish({ do: "active" });
  }

  /** The person is idle here, and the server should not wait to find out. */
  idle(): void {
    this.#wish({ do: "idle" });
  }

  /** Sign this device out: offline at once, in all its tabs. */
  bye(): void {
    this.#wish({ send: { type: "presence.bye" } });
  }

  /** Connect again after the state was `closed`: somebody signed in once more, perhaps somebody else. */
  connect(): void {
    void this.#start();
  }

  /** This page is done. Other tabs go on; if there is none, the server notices by itself. */
  close(): void {
    if (this.#closed) return;
    this.#leave();
    this.#closed = true;
    this.#unfollow();
    this.#part();
    this.#stateIs({ phase: "closed" });
    this.#timers.clear();
  }

  // Starting

  async #start(): Promise<void> {
    const turn = ++this.#turn;
    let token;
    try {
      token = await this.#link.token();
    } catch {
      // The link will ask again, and say so if it fails again; for this page then with a socket of its own.
    }
    if (this.#closed || turn !== this.#turn) return;
    this.#token = token ?? undefined;
    const { sub } = claims(this.#token ?? "");
    if ((this.#desk || this.#tabs) && (!this.#token || sub === this.#sub)) return this.#connect();
    this.#part();
    this.#sub = sub;
    this.#me = undefined; // what somebody else was told is not kept
    this.#roster = new Roster();
    if (this.#share && sub !== undefined) this.#meet();
    if (!this.#tabs) this.#lead();
  }

  #connect(): void {
    this.#wish({ do: "start", token: this.#token });
  }

  #part(): void {
    this.#tabs?.end();
    this.#desk?.end();
    this.#tabs = this.#desk = undefined;
  }

  #meet(): void {
    // Tabs of two people must not share: whose token it is stands in the name.
    this.#tabs = tabs(`herenow ${this.#url} ${this.#sub}`, {
      hear: (news) => this.#hear(news),
      take: (wish) => this.#desk?.take(wish),
      lead: () => this.#lead(),
      follow: () => {
        this.#desk?.end();
        this.#desk = undefined;
        this.#knock();
      },
    });
    this.#timers.in(0, "knock", () => this.#knock());
  }

  #lead(): void {
    this.#desk = new Desk(this.#url, this.#link, (news) => {
      if (news.to !== this.#tab) this.#tabs?.post(news);
      this.#hear(news);
    });
    this.#want();
    this.#connect();
  }

  /** To the tab that leads: this is what we want. If it does not answer while somebody looks, we lead. */
  #knock(): void {
    this.#timers.in(KNOCK, "knock", () => this.#knock());
    this.#want();
    if (!this.#desk && !globalThis.document?.hidden) this.#timers.in(SILENCE, "silence", () => this.#tabs?.rob());
  }

  // Saying

  #wish(wish: Omit<Wish, "tab">): void {
    const whole = { tab: this.#tab, ...wish };
    this.#desk ? this.#desk.take(whole) : this.#tabs?.post(whole);
  }

  /** What changes together is said together: five thousand dots are one list. */
  #wantSoon(): void {
    if (!this.#timers.has("want")) this.#timers.in(BATCH, "want", () => this.#want());
  }

  #want(): void {
    const wants = { users: [...this.#watchers.keys()], rooms: this.#rooms(), contacts: this.#everybody.size > 0 };
    this.#wish({ wants, again: this.#again.splice(0) });
  }

  #rooms(): string[] {
    return [...this.#open].map(({ room }) => room);
  }

  #watch(user: Id, watcher: Watcher): string {
    const id = String(user);
    if (parseId(user)) {
      if (this.get(id).denied) this.#again.push(id);
      this.#watchers.set(id, (this.#watchers.get(id) ?? new Set()).add(watcher));
    } else this.#roster.deny(id, "invalid_user_id");
    const known = this.#roster.get(id);
    if (known) emit([watcher], known, undefined);
    return id;
  }

  #forget(): void {
    for (const [user, watchers] of this.#watchers) if (!watchers.size) this.#watchers.delete(user);
    if (!this.#everybody.size) for (const user of this.#roster.users()) if (!this.#watchers.has(user)) this.#roster.forget(user);
    this.#want();
  }

  #set(choice: Choice): Promise<void> {
    const id = random();
    const frame = { ...setFrame(choice, Date.now()), id };
    const answered = new Promise<void>((resolve, reject) => this.#waiting.set(id, [frame, resolve, reject]));
    answered.catch(() => {}); // who does not wait for it need not catch it
    this.#timers.in(ANSWER, id, () => this.#refuse(id, "no_answer"));
    this.#choose(id, frame);
    return answered;
  }

  /** Once for every connection, until it is answered: a choice may be said twice, but not be lost on the way. */
  #choose(id: string, frame: Frame): void {
    if (this.#state.phase === "connected") {
      this.#wish({ send: frame });
      this.#knock(); // if the tab that leads is asleep, it is noticed now
    }
    if (this.#state.phase === "closed") this.#refuse(id, "closed");
  }

  #refuse(id: string, code: string): void {
    this.#answer({ type: "presence.error", id, code });
  }

  /** False: nobody waits for it here. */
  #answer({ id, type, code, message }: Frame): boolean {
    const [, resolve, reject] = this.#waiting.get(id as string) ?? [];
    if (!resolve) return false;
    this.#waiting.delete(id as string);
    this.#timers.cancel(id as string);
    type === "presence.error" ? reject!(new HerenowError(code, message)) : resolve();
    return true;
  }

  #leave(): void {
    this.#wish({ wants: null });
  }

  // Hearing

  #hear(news: News): void {
    if (news.to !== undefined && news.to !== this.#tab) return;
    this.#timers.cancel("silence");
    if (news.state) this.#stateIs(news.state);
    // Said to all: perhaps another tab has begun to lead, and does not know yet what we want.
    if (news.state && !news.to && !this.#desk) this.#knock();
    for (const frame of news.frames ?? []) this.#frame(frame);
  }

  #stateIs(state: State): void {
    const before = this.#state;
    this.#state = state;
    if (alike(before, state)) return;
    if (before.phase !== state.phase) {
      this.#roster.lost();
      if (state.phase === "connected") this.#timers.cancel("stale");
      else if (before.phase === "connected") this.#timers.in(STALE, "stale", () => this.#changed(this.#roster.age()));
      for (const [id, [frame]] of this.#waiting) this.#choose(id, frame);
    }
    emit(this.#onState, state);
  }

  #frame(frame: Frame): void {
    const changes: (Change | undefined)[] = [];
    for (const said of statuses(frame)) if (this.#cares(said.user_id)) changes.push(this.#roster.take(said));
    for (const { target_user_id: user, reason } of denials(frame)) if (this.#cares(user)) changes.push(this.#roster.deny(user, reason));
    this.#changed(changes);
    if (this.#answer(frame)) return;
    if (frame.type === "presence.self") this.#self(frame);
    else if (frame.type === "presence.typing") this.#types(frame);
    else if (frame.type === "presence.error") emit(this.#onError, new HerenowError(frame.code, frame.message));
  }

  #cares(user: string): boolean {
    return this.#everybody.size > 0 || this.#watchers.has(user);
  }

  #changed(changes: (Change | undefined)[]): void {
    for (const change of changes) {
      if (change) emit([...(this.#watchers.get(change[0].user) ?? []), ...this.#everybody], ...change);
    }
  }

  #self(frame: Frame): void {
    const { type, ...me } = camel(frame);
    this.#me = me as Me;
    emit(this.#onMe, this.#me);
  }

  #types({ user_id: user, to, room, expires_in }: Frame): void {
    if (room !== undefined && !this.#rooms().includes(room)) return;
    const event = { user, to, room };
    const key = JSON.stringify(event);
    const typing = expires_in > 0;
    this.#timers.cancel(key);
    if (typing) this.#timers.in(expires_in * 1000, key, () => emit(this.#onTyping, { ...event, typing: false }));
    emit(this.#onTyping, { ...event, typing });
  }

  // Small things

  #add<T>(listeners: Set<(value: T) => void>, listener: (value: T) => void): Stop {
    const own = (value: T) => listener(value);
    listeners.add(own);
    return () => void listeners.delete(own);
  }
}

/** One listener's mistake is not the others'. */
function emit<A extends unknown[]>(listeners: Iterable<(...args: A) => void>, ...args: A): void {
  for (const listener of [...listeners]) {
    try {
      listener(...args);
    } catch (error) {
      console.error(error);
    }
  }
}
