/**
 * The live client: watch presences, set the own status, send and receive typing.
 *
 * It holds what this page wants and knows; `desk` and `tabs` exchange that with the server, through this tab's socket or
 * another's.
 */
import { follow } from "./activity.js";
import { tokenDelay } from "./backoff.js";
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
import { claims, requester } from "./token.js";
import type { Choice, Frame, Id, Me, Options, Place, Presence, State, Typing } from "./types.js";


/** Called with a presence and the one before it; `before` is undefined for the first one of a user. */
export type Watcher = (now: Presence, before: Presence | undefined) => void;
/** Ends what the call that returned it began. */
export type Stop = () => void;

/** The live client. It connects when it is created, and reconnects until `close`. */
export class Herenow {
  /** The user's own presence. */
  readonly me = {
    /** The user's own presence; undefined until the server has sent it. */
    get: (): Me | undefined => this.#me,
    /** Call `listener` whenever the user's own presence changes. */
    on: (listener: (me: Me) => void): Stop => this.#add(this.#onMe, listener),
    /**
     * Set the user's mode, custom status, or both; resolves when the server has confirmed it. If the connection ends before
     * the response, the call is repeated on the next one. Rejects with a `HerenowError`: the server's code, `no_answer` after
     * 10 seconds without a response, or `closed`. An ignored rejection is not reported as unhandled.
     */
    set: (choice: Choice): Promise<void> => this.#set(choice),
    /** Return to the automatic mode: the status follows the devices' activity. The custom status stays. */
    auto: (): Promise<void> => this.#set({ mode: "auto" }),
    /** Clear the custom status; the mode stays. */
    clear: (): Promise<void> => this.#set({ text: null }),
  };

  #url: string;
  #link: LinkOptions;
  #tab = random();
  #roster = new Roster();
  #state: State = { phase: "connecting" };
  #me: Me | undefined;
  #share: boolean;
  /** The `sub` claim (user id) of the last token. */
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
  #attempt = 0;
  /** Unanswered `set` frames by id. */
  #waiting = new Map<string, [Frame, () => void, (error: HerenowError) => void]>();
  #timers = new Timers();
  #unfollow: Stop;

  /** `url` is the WebSocket address of the server; it may be relative to the page. */
  constructor(url: string, options: Options) {
    const address = new URL(url, globalThis.location?.href);
    address.protocol = address.protocol.replace("http", "ws");
    address.searchParams.set("device_id", String(options.deviceId ?? deviceId()));
    address.searchParams.set("platform", options.platform ?? "web");
    this.#url = address.href;
    this.#link = { token: requester(options.token), WebSocket: options.WebSocket };
    this.#unfollow = follow(
      () => options.activity === false || this.active(),
      () => {
        this.#wish({ do: "wake" });
        if (this.#timers.has("start")) this.connect();
        this.#knock(); // also when the page returns from the browser's cache after it left
      },
      () => this.#leave(),
    );
    this.#share = options.shareTabs !== false;
    this.#start();
  }

  /** The state of the connection. */
  get state(): State {
    return this.#state;
  }

  /** Call `listener` whenever the state changes. */
  onState(listener: (state: State) => void): Stop {
    return this.#add(this.#onState, listener);
  }

  /** Call `listener` for errors that belong to no call: refusals of the server, and failed token requests. */
  onError(listener: (error: HerenowError) => void): Stop {
    return this.#add(this.#onError, listener);
  }

  /** The last known presence of a user; its status is `unknown` if the user is not watched or nothing came yet. */
  get(user: Id): Presence {
    return this.#roster.get(String(user)) ?? unknown(String(user));
  }

  /**
   * Watch users: call `watcher` with what is known of them, then with each change. All watchers share one subscription per
   * user. Watching a user whom the server denied requests it again. An invalid id is reported as denied.
   */
  watch(users: Iterable<Id>, watcher: Watcher): Stop {
    const own: Watcher = (now, before) => watcher(now, before); // the same function may watch twice
    const ids = [...new Set([...users].map((user) => this.#watch(user, own)))];
    this.#wantSoon();
    return () => {
      for (const id of ids) if (this.#watchers.get(id)?.delete(own)) this.#timers.in(LINGER, "forget", () => this.#forget());
    };
  }

  /** Watch all users that this user may see, including those added later. */
  watchContacts(watcher: Watcher): Stop {
    const own: Watcher = (now, before) => watcher(now, before);
    this.#everybody.add(own);
    for (const user of this.#roster.users()) emit([own], this.get(user), undefined);
    this.#wantSoon();
    return () => {
      if (this.#everybody.delete(own)) this.#timers.in(LINGER, "forget", () => this.#forget());
    };
  }

  /** Receive typing events of a room that this user is a member of, until the returned function is called. */
  open(room: Id): Stop {
    const own = { room: String(room) };
    this.#open.add(own);
    this.#wantSoon();
    return () => {
      if (this.#open.delete(own)) this.#wantSoon();
    };
  }

  /**
   * Report that the user types to a user (`to`) or in a room. Call it on every keystroke: one frame per 4 seconds is sent.
   * `typing: false` reports the stop at once, for example when the message is sent.
   */
  typing(where: Place & { typing?: boolean }): void {
    const { typing = true, ...place } = where;
    const key = JSON.stringify(place);
    if (typing && this.#timers.has(key)) return;
    typing ? this.#timers.in(TYPING, key, () => {}) : this.#timers.cancel(key);
    this.#wish({ send: { type: "presence.typing", ...place, ...(!typing && { typing }) } });
  }

  /** Call `listener` when a user starts or stops typing, to this user or in an open room (see `open`). */
  onTyping(listener: (typing: Typing) => void): Stop {
    return this.#add(this.#onTyping, listener);
  }

  /** Report user activity. On a page the client detects activity itself, unless the option `activity` is false. */
  active(): void {
    this.#wish({ do: "active" });
  }

  /** Report at once that the user is idle on this device. */
  idle(): void {
    this.#wish({ do: "idle" });
  }

  /** Sign this device out, with all its tabs: it is offline at once. */
  bye(): void {
    this.#wish({ send: { type: "presence.bye" } });
  }

  /** Connect again after the state was `closed` or `signed_out`. It requests a new token, which may be another user's. */
  connect(): void {
    if (!this.#closed) this.#start();
  }

  /** Close this client. Other tabs stay connected; without any, the user goes offline after the server's reconnect window. */
  close(): void {
    if (this.#closed) return;
    this.#leave();
    this.#closed = true;
    this.#attempt++;
    this.#unfollow();
    this.#disconnect();
    this.#stateIs({ phase: "closed" });
    this.#timers.clear();
  }

  // Starting

  /** Request a token, because only tabs of the same user share a socket; then connect. */
  #start(failures = 0): void {
    const attempt = ++this.#attempt;
    this.#timers.cancel("start");
    this.#link.token().then(
      (token) => attempt === this.#attempt && this.#startWith(token),
      (error) => {
        if (attempt !== this.#attempt) return;
        const retryIn = tokenDelay(++failures);
        this.#timers.in(retryIn, "start", () => this.#start(failures));
        emit(this.#onError, new HerenowError("token_failed", String(error)));
        // `connect` may have been called without need.
        if (this.#state.phase !== "connected") this.#stateIs({ phase: "reconnecting", reason: "token_failed", retryIn });
      },
    );
  }

  #startWith(token: string | null | undefined): void {
    const { sub } = claims(token ?? "");
    if (token && (this.#desk || this.#tabs) && sub === this.#sub) return this.#connect(token);
    this.#disconnect();
    if (!token) return this.#stateIs({ phase: "signed_out" });
    this.#token = token;
    this.#sub = sub;
    this.#me = undefined; // another user signed in: drop what the previous user received
    this.#roster = new Roster();
    if (this.#share && sub !== undefined) this.#joinTabs();
    if (!this.#tabs) this.#lead();
  }

  #connect(token: string): void {
    this.#token = token;
    this.#wish({ do: "start", token });
  }

  #disconnect(): void {
    this.#tabs?.end();
    this.#desk?.end();
    this.#tabs = this.#desk = undefined;
  }

  #joinTabs(): void {
    // Tabs of different users must not share a socket, so the channel's name contains the user.
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
    this.#connect(this.#token!);
  }

  /** Send our subscriptions to the leading tab. If it does not answer while this page is visible, take over the lead. */
  #knock(): void {
    this.#timers.in(KNOCK, "knock", () => this.#knock());
    this.#want();
    if (!this.#desk && !globalThis.document?.hidden) this.#timers.in(SILENCE, "silence", () => this.#tabs?.rob());
  }

  // Sending

  #wish(wish: Omit<Wish, "tab">): void {
    const whole = { tab: this.#tab, ...wish };
    this.#desk ? this.#desk.take(whole) : this.#tabs?.post(whole);
  }

  /** Send the subscriptions soon, once for all that change now: 5 000 new dots become one list. */
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
    answered.catch(() => {}); // callers that ignore the promise need not catch its rejection
    this.#timers.in(ANSWER, id, () => this.#refuse(id, "no_answer"));
    this.#choose(id, frame);
    return answered;
  }

  /** Send an unanswered `set` frame; repeated on each new connection. Sending it twice is harmless. */
  #choose(id: string, frame: Frame): void {
    if (this.#state.phase === "connected") {
      this.#wish({ send: frame });
      this.#knock(); // detects a leading tab that is asleep
    }
    if (["closed", "signed_out"].includes(this.#state.phase)) this.#refuse(id, "closed");
  }

  #refuse(id: string, code: string): void {
    this.#answer({ type: "presence.error", id, code });
  }

  /** Resolve or reject the call that a frame answers; false if there is none in this tab. */
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

  // Receiving

  #hear(news: News): void {
    if (news.to !== undefined && news.to !== this.#tab) return;
    this.#timers.cancel("silence");
    if (news.state) this.#stateIs(news.state);
    // A state sent to all tabs: a new tab may lead and not know our subscriptions yet.
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

  // Helpers

  #add<T>(listeners: Set<(value: T) => void>, listener: (value: T) => void): Stop {
    const own = (value: T) => listener(value);
    listeners.add(own);
    return () => void listeners.delete(own);
  }
}

/** Call all listeners; an exception of one does not affect the others. */
function emit<A extends unknown[]>(listeners: Iterable<(...args: A) => void>, ...args: A): void {
  for (const listener of [...listeners]) {
    try {
      listener(...args);
    } catch (error) {
      console.error(error);
    }
  }
}
