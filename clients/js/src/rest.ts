/**
 * The REST client: single reads, the user's own blocks, preferences and devices, and calls for back ends. It is a separate
 * entry point, so that pages that only show presence do not load it.
 */
import { instant } from "./choices.js";
import { HerenowError } from "./errors.js";
import { camel } from "./spelling.js";
import { requester } from "./token.js";
import type { Custom, Device, Id, Me, Mode, Platform, Presence, Source, Status, TokenSource, Until } from "./types.js";

export { HerenowError };

export interface RestOptions {
  /** A JWT, or the address of an endpoint (a string with a slash) or a function that is asked for one for each request. */
  token: TokenSource;
  /** The fetch function to use; default the global one. */
  fetch?: typeof fetch;
}

/** `viewer` (service tokens only) reads exactly what that user would get; without it a service token reads the truth. */
export interface AsViewer {
  viewer?: Id;
}

/**
 * `user` (service tokens only) sets it for that user, as one of several sources (default: `service`). The user's own choice
 * counts before all of them.
 */
export interface ForUser {
  user?: Id;
  source?: Exclude<Source, "user">;
}

export interface Preferences {
  /** The users that may see this user's presence. */
  readonly visibility: "everyone" | "contacts" | "nobody";
  /** False: other users do not get this user's exact last seen, and this user does not get theirs. */
  readonly shareLastSeen: boolean;
  /** Seconds without activity until the user is away; null: the server's default. */
  readonly idleAfter: number | null;
  /** True if the public profile can be read without a relation. */
  readonly public: boolean;
}

/** Why a viewer sees a target as it does. `facts` and `truth` are untyped, because newer servers may add fields. */
export interface Explanation {
  readonly viewer: string;
  readonly target: string;
  /** The visibility rule that decided: `self`, `blocked`, `contacts`, … */
  readonly rule: string;
  readonly sight: "truth" | "full" | "blurred" | "offline";
  readonly facts: Readonly<Record<string, unknown>>;
  /** The target's true state: status, sessions, mode, and the reason for it. */
  readonly truth: Readonly<Record<string, unknown>>;
  /** The presence that the viewer gets. */
  readonly shown: Presence;
}

/** The server refused a REST request, or did not respond (`code` is then `no_answer`). */
export class RestError extends HerenowError {
  /** The HTTP status; 0 if there was no response. */
  readonly status: number;
  /** Seconds to wait before a retry; undefined if the server sent none. */
  readonly retryAfter: number | undefined;
  constructor(code: string, message: string, status: number, retryAfter?: number) {
    super(code, message);
    this.name = "RestError";
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The REST client. Every method rejects with a `RestError` if the server refuses the request or does not respond. */
export class Rest {
  #base: string;
  #options: RestOptions;

  /** `url` is the server's address without `/api/v1`; it may be relative to the page. */
  constructor(url: string, options: RestOptions) {
    this.#base = new URL(url, globalThis.location?.href).href.replace(/\/$/, "") + "/api/v1";
    this.#options = options;
  }

  // Reading

  /** The presence of one user; unrelated and unknown users look offline. */
  async get(user: Id, as?: AsViewer): Promise<Presence> {
    return (await this.getMany([user], as))[0]!;
  }

  /** The presences of many users, in the given order, without duplicates. */
  async getMany(users: Iterable<Id>, as?: AsViewer): Promise<Presence[]> {
    return (await this.ask("POST", "/presence/query", { user_ids: [...users] }, as)).map(presence);
  }

  /** The user's own presence: the true status, even while invisible. */
  me(as?: AsViewer): Promise<Me> {
    return this.ask("GET", "/presence/me", undefined, as);
  }

  /** The number of the user's contacts in each status. */
  count(as?: AsViewer): Promise<Record<Exclude<Status, "unknown">, number>> {
    return this.ask("GET", "/presence/count", undefined, as);
  }

  /** The user's contacts: online, busy, away, then offline by last seen. At most `limit`, by default 50. */
  async leaderboard({ limit, viewer }: { limit?: number } & AsViewer = {}): Promise<Presence[]> {
    return (await this.ask("GET", "/presence/leaderboard", undefined, { limit, viewer })).friends.map(presence);
  }

  /** The user's own devices, sorted by id. */
  async devices(as?: AsViewer): Promise<Device[]> {
    return (await this.ask("GET", "/presence/devices", undefined, as)).devices;
  }

  /** The user's preferences. */
  preferences(as?: AsViewer): Promise<Preferences> {
    return this.ask("GET", "/presence/preferences", undefined, as);
  }

  /** The ids that the user blocks, sorted. */
  async blocks(as?: AsViewer): Promise<string[]> {
    return (await this.ask("GET", "/blocks", undefined, as)).blocked;
  }

  /** The public profile of a user, which needs no relation; undefined if the user has none. */
  async publicProfile(user: Id): Promise<Presence | undefined> {
    try {
      return presence(await this.ask("GET", `/public/${part(user)}`));
    } catch (error) {
      if (error instanceof RestError && error.code === "not_found") return;
      throw error;
    }
  }

  // Setting

  /** Set the mode until `until` (null or undefined: no end; ignored for `auto`). */
  async setMode(mode: Mode, { until, user, source }: { until?: Until | null } & ForUser = {}): Promise<void> {
    await this.ask("PUT", of(user, "mode"), { mode, until: instant(until, Date.now()), source });
  }

  /** Set the custom status until `until` (null or undefined: no end). Resolves to it as stored; null if it was cleared. */
  async setStatus(custom: { text?: string; emoji?: string; until?: Until | null }, { user, source }: ForUser = {}): Promise<Custom | null> {
    const { until, ...rest } = custom;
    return (await this.ask("PUT", of(user, "status"), { ...rest, expires_at: instant(until, Date.now()), source })).custom;
  }

  /** Clear the custom status; with `user`, only that of this source. */
  clearStatus({ user, source }: ForUser = {}): Promise<void> {
    return this.ask("DELETE", of(user, "status"), undefined, { source });
  }

  /** Change preferences. What is left out stays unchanged. Resolves to all preferences. */
  setPreferences({ shareLastSeen, idleAfter, ...same }: Partial<Preferences>): Promise<Preferences> {
    return this.ask("PUT", "/presence/preferences", { ...same, share_last_seen: shareLastSeen, idle_after: idleAfter });
  }

  /** Block a user: from now on neither sees the other. */
  block(user: Id): Promise<void> {
    return this.ask("PUT", `/blocks/${part(user)}`);
  }

  /** Remove a block; nothing happens if there is none. */
  unblock(user: Id): Promise<void> {
    return this.ask("DELETE", `/blocks/${part(user)}`);
  }

  /** Sign out one of the user's devices. Rejects with `device_unknown` if there is none. */
  signOut(device: Id): Promise<void> {
    return this.ask("DELETE", `/presence/devices/${part(device)}`);
  }

  /**
   * Keep a device online without a WebSocket. Resolves to the device id and the seconds until the next heartbeat. Without
   * `deviceId` the device id is `rest`; without `activity` it is a heartbeat without activity.
   */
  heartbeat(beat: { deviceId?: Id; activity?: "active" | "idle"; platform?: Platform } = {}): Promise<{ deviceId: string; beatEvery: number }> {
    return this.ask("POST", "/presence/heartbeat", { device_id: beat.deviceId, activity_type: beat.activity, platform: beat.platform });
  }

  // Service tokens only: relations and users

  /** Let `a` follow `b`. Two users who follow each other see each other's presence. */
  follow(a: Id, b: Id): Promise<void> {
    return this.ask("PUT", `/follows/${part(a)}/${part(b)}`);
  }

  /** End that `a` follows `b`. */
  unfollow(a: Id, b: Id): Promise<void> {
    return this.ask("DELETE", `/follows/${part(a)}/${part(b)}`);
  }

  /** Make `a` and `b` contacts of each other until `until` (null or undefined: no end). */
  addContact(a: Id, b: Id, { until }: { until?: Until | null } = {}): Promise<void> {
    return this.ask("PUT", `/contacts/${part(a)}/${part(b)}`, { until: instant(until, Date.now()) });
  }

  /** End the contact of `a` and `b`. */
  removeContact(a: Id, b: Id): Promise<void> {
    return this.ask("DELETE", `/contacts/${part(a)}/${part(b)}`);
  }

  /** Make a user a member of a room. */
  addMember(room: Id, user: Id): Promise<void> {
    return this.ask("PUT", `/rooms/${part(room)}/members/${part(user)}`);
  }

  /** End a user's membership of a room. */
  removeMember(room: Id, user: Id): Promise<void> {
    return this.ask("DELETE", `/rooms/${part(room)}/members/${part(user)}`);
  }

  /** Explain why `viewer` sees `target` as it does. */
  async explain(viewer: Id, target: Id): Promise<Explanation> {
    const why = await this.ask("GET", "/explain", undefined, { viewer, target });
    return { ...why, shown: presence(why.shown) };
  }

  /** Sign a user out on all devices, or on one; the user's tokens stay valid. */
  disconnect(user: Id, { deviceId }: { deviceId?: Id } = {}): Promise<void> {
    return this.ask("POST", of(user, "disconnect"), { device_id: deviceId });
  }

  /** Revoke the user's tokens issued before `issuedBefore` (default: now), and close the sockets opened with them. */
  async revoke(user: Id, { issuedBefore }: { issuedBefore?: Until } = {}): Promise<void> {
    await this.ask("POST", of(user, "revoke"), { issued_before: instant(issuedBefore, Date.now()) });
  }

  /** Delete everything about a user, and revoke the user's tokens. With a new token the user starts as a new one. */
  deleteUser(user: Id): Promise<void> {
    return this.ask("DELETE", `/users/${part(user)}`);
  }

  /** Call any endpoint; `path` is relative to `/api/v1`. Resolves to the response with its field names in camelCase. */
  async ask(method: string, path: string, body?: object, query: object = {}): Promise<any> {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined) asked.set(name, String(value));
    const headers: Record<string, string> = { authorization: `Bearer ${await this.#token()}` };
    if (body) headers["content-type"] = "application/json";
    const address = this.#base + path + (`${asked}` && `?${asked}`);
    const send = this.#options.fetch ?? fetch;
    let answer: Response, text: string;
    try {
      answer = await send(address, { method, headers, body: body && JSON.stringify(body) });
      text = await answer.text();
    } catch (error) {
      throw new RestError("no_answer", String(error), 0);
    }
    const said = json(text);
    if (answer.ok && (said !== undefined || !text)) return camel(said);
    const after = answer.headers.get("retry-after");
    // Without a code it is probably the response of a proxy.
    throw new RestError(said?.code ?? `http_${answer.status}`, said?.detail ?? text.slice(0, 200), answer.status, after ? +after : undefined);
  }

  async #token(): Promise<string | null | undefined> {
    const { token } = this.#options;
    if (typeof token !== "string") return token();
    let jwt;
    try {
      jwt = await requester(token)();
    } catch (error) {
      throw new RestError("token_failed", String(error), 0);
    }
    if (!jwt) throw new RestError("signed_out", "No user is signed in.", 0);
    return jwt;
  }
}

function presence(said: any): Presence {
  return { stale: false, ...said };
}

function part(id: Id): string {
  return encodeURIComponent(String(id));
}

function of(user: Id | undefined, what: string): string {
  return user === undefined ? `/presence/${what}` : `/users/${part(user)}/${what}`;
}

function json(text: string): any {
  try {
    return JSON.parse(text);
  } catch {}
}
