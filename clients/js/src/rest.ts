/**
 * REST: what is asked once instead of watched, what only concerns oneself (blocks, preferences, devices), and what a back
 * end does for its users. An entry of its own: pages that only show dots do not pay for it.
 */
import { instant } from "./choices.js";
import { HerenowError } from "./errors.js";
import { camel } from "./spelling.js";
import type { Custom, Device, Id, Me, Mode, Platform, Presence, Status, TokenSource, Until } from "./types.js";

export { HerenowError };

export interface RestOptions {
  /** A JWT, or what gives one; asked for with every request. */
  token: TokenSource;
  fetch?: typeof fetch;
}

/** For service tokens: exactly what that user would get. */
export interface AsViewer {
  viewer?: Id;
}

/** For service tokens: act for that user. */
export interface ForUser {
  user?: Id;
}

export interface Preferences {
  readonly visibility: "everyone" | "contacts" | "nobody";
  readonly shareLastSeen: boolean;
  /** Seconds; null: the server's default. */
  readonly idleAfter: number | null;
  /** Whether anybody at all may read the public profile. */
  readonly public: boolean;
}

export interface Explanation {
  readonly viewer: string;
  readonly target: string;
  /** The rule that decided: `self`, `blocked`, `contacts`, … */
  readonly rule: string;
  readonly sight: "truth" | "full" | "blurred" | "offline";
  readonly facts: Readonly<Record<string, unknown>>;
  readonly truth: Readonly<Record<string, unknown>>;
  readonly shown: Presence;
}

export class RestError extends HerenowError {
  /** That of the answer; 0: there was none. */
  readonly status: number;
  /** Seconds after which to ask again, where the server says so. */
  readonly retryAfter: number | undefined;
  constructor(code: string, message: string, status: number, retryAfter?: number) {
    super(code, message);
    this.name = "RestError";
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export class Rest {
  #base: string;
  #options: RestOptions;

  /** `url` is the server's, without `/api/v1`. */
  constructor(url: string, options: RestOptions) {
    this.#base = new URL(url, globalThis.location?.href).href.replace(/\/$/, "") + "/api/v1";
    this.#options = options;
  }

  // Reading

  async get(user: Id, as?: AsViewer): Promise<Presence> {
    return (await this.getMany([user], as))[0]!;
  }

  /** In the order asked, each once. */
  async getMany(users: Iterable<Id>, as?: AsViewer): Promise<Presence[]> {
    return (await this.ask("POST", "/presence/query", { user_ids: [...users] }, as)).map(presence);
  }

  me(as?: AsViewer): Promise<Me> {
    return this.ask("GET", "/presence/me", undefined, as);
  }

  /** The contacts by status. */
  count(as?: AsViewer): Promise<Record<Exclude<Status, "unknown">, number>> {
    return this.ask("GET", "/presence/count", undefined, as);
  }

  async leaderboard({ limit, viewer }: { limit?: number } & AsViewer = {}): Promise<Presence[]> {
    return (await this.ask("GET", "/presence/leaderboard", undefined, { limit, viewer })).friends.map(presence);
  }

  async devices(as?: AsViewer): Promise<Device[]> {
    return (await this.ask("GET", "/presence/devices", undefined, as)).devices;
  }

  preferences(as?: AsViewer): Promise<Preferences> {
    return this.ask("GET", "/presence/preferences", undefined, as);
  }

  async blocks(as?: AsViewer): Promise<string[]> {
    return (await this.ask("GET", "/blocks", undefined, as)).blocked;
  }

  /** As anybody at all may see it; undefined: there is no such profile. */
  async publicProfile(user: Id): Promise<Presence | undefined> {
    try {
      return presence(await this.ask("GET", `/public/${part(user)}`));
    } catch (error) {
      if (error instanceof RestError && error.code === "not_found") return;
      throw error;
    }
  }

  // Choosing

  async setMode(mode: Mode, { until, user }: { until?: Until | null } & ForUser = {}): Promise<void> {
    await this.ask("PUT", of(user, "mode"), { mode, until: instant(until, Date.now()) });
  }

  async setStatus(custom: { text?: string; emoji?: string; until?: Until | null }, { user }: ForUser = {}): Promise<Custom | null> {
    const { until, ...rest } = custom;
    return (await this.ask("PUT", of(user, "status"), { ...rest, expires_at: instant(until, Date.now()) })).custom;
  }

  clearStatus({ user }: ForUser = {}): Promise<void> {
    return this.ask("DELETE", of(user, "status"));
  }

  /** What is not mentioned stays as it is; answers with all of them. */
  setPreferences({ shareLastSeen, idleAfter, ...same }: Partial<Preferences>): Promise<Preferences> {
    return this.ask("PUT", "/presence/preferences", { ...same, share_last_seen: shareLastSeen, idle_after: idleAfter });
  }

  /** Neither sees the other from now on. */
  block(user: Id): Promise<void> {
    return this.ask("PUT", `/blocks/${part(user)}`);
  }

  unblock(user: Id): Promise<void> {
    return this.ask("DELETE", `/blocks/${part(user)}`);
  }

  signOut(device: Id): Promise<void> {
    return this.ask("DELETE", `/presence/devices/${part(device)}`);
  }

  /** Be here without a WebSocket. */
  heartbeat(beat: { deviceId?: Id; activity?: "active" | "idle"; platform?: Platform } = {}): Promise<{ deviceId: string; beatEvery: number }> {
    return this.ask("POST", "/presence/heartbeat", { device_id: beat.deviceId, activity_type: beat.activity, platform: beat.platform });
  }

  // For back ends: the graph, and what is done to a user

  follow(a: Id, b: Id): Promise<void> {
    return this.ask("PUT", `/follows/${part(a)}/${part(b)}`);
  }

  unfollow(a: Id, b: Id): Promise<void> {
    return this.ask("DELETE", `/follows/${part(a)}/${part(b)}`);
  }

  addContact(a: Id, b: Id, { until }: { until?: Until | null } = {}): Promise<void> {
    return this.ask("PUT", `/contacts/${part(a)}/${part(b)}`, { until: instant(until, Date.now()) });
  }

  removeContact(a: Id, b: Id): Promise<void> {
    return this.ask("DELETE", `/contacts/${part(a)}/${part(b)}`);
  }

  addMember(room: Id, user: Id): Promise<void> {
    return this.ask("PUT", `/rooms/${part(room)}/members/${part(user)}`);
  }

  removeMember(room: Id, user: Id): Promise<void> {
    return this.ask("DELETE", `/rooms/${part(room)}/members/${part(user)}`);
  }

  /** Why does one see the other so? */
  async explain(viewer: Id, target: Id): Promise<Explanation> {
    const why = await this.ask("GET", "/explain", undefined, { viewer, target });
    return { ...why, shown: presence(why.shown) };
  }

  /** Sign out everywhere, or one device; tokens stay good. */
  disconnect(user: Id, { deviceId }: { deviceId?: Id } = {}): Promise<void> {
    return this.ask("POST", of(user, "disconnect"), { device_id: deviceId });
  }

  /** Tokens issued before that instant (now, if left out) are void. */
  async revoke(user: Id, { issuedBefore }: { issuedBefore?: Until } = {}): Promise<void> {
    await this.ask("POST", of(user, "revoke"), { issued_before: instant(issuedBefore, Date.now()) });
  }

  /** Everything about the user is forgotten. */
  deleteUser(user: Id): Promise<void> {
    return this.ask("DELETE", `/users/${part(user)}`);
  }

  /** Any other endpoint; the answer spelled as JavaScript is. Rejects with a `RestError`. */
  async ask(method: string, path: string, body?: object, query: object = {}): Promise<any> {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined) asked.set(name, String(value));
    const { token } = this.#options;
    const headers: Record<string, string> = { authorization: `Bearer ${typeof token === "string" ? token : await token()}` };
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
    // Without a code it is not the server's answer: a proxy's, perhaps.
    throw new RestError(said?.code ?? `http_${answer.status}`, said?.detail ?? text.slice(0, 200), answer.status, after ? +after : undefined);
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
