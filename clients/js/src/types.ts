/**
 * The types of this package. Types for the application use camelCase (`lastSeen`); types of the wire use the server's
 * snake_case (`last_seen`) and have `Wire` in their names.
 */

/** `unknown`: nothing was received yet, or the server refused (see `denied`). */
export type Status = "online" | "away" | "busy" | "offline" | "unknown";
/** In the mode `auto` the status follows the devices' activity; an `invisible` user is shown as offline to others. */
export type Mode = "auto" | "busy" | "away" | "invisible";
export type Platform = "web" | "desktop" | "mobile" | "other";

/** The id of a user, device or room: 1 to 128 bytes of UTF-8 in NFC without whitespace, control characters or comma. */
export type Id = string | number;

/** A custom status. `text` or `emoji` may be empty. */
export interface Custom {
  readonly text: string;
  readonly emoji: string;
  /** Epoch milliseconds; null: no end. */
  readonly expiresAt: number | null;
}

/** The presence of a user, as this client may see it. Times are epoch milliseconds. A changed presence is a new object. */
export interface Presence {
  readonly user: string;
  readonly status: Status;
  readonly since: number | null;
  readonly lastSeen: number | null;
  /** A coarse range instead of `lastSeen`, when the exact time is not shared with this user. */
  readonly lastSeenBucket?: string;
  readonly custom: Custom | null;
  readonly platforms: readonly Platform[];
  /** The time at which the server knew this presence to be true. */
  readonly asOf: number;
  /** True if this is the last known presence and may be out of date. Show the dot, but pale. */
  readonly stale: boolean;
  /** `paced`: changes may arrive some seconds late. `poll`: changes are not pushed. Undefined: live. */
  readonly delivery?: string;
  /** The reason for a refusal: `not_mutual_followers`, `too_many_subscriptions` or `invalid_user_id`. */
  readonly denied?: string;
}

/** One of the user's own devices. `since` is in epoch milliseconds. */
export interface Device {
  readonly deviceId: string;
  readonly platform: Platform;
  readonly active: boolean;
  readonly since: number;
}

/** Where a mode or custom status comes from, highest first; all but `user` are set by services. */
export type Source = "user" | "call" | "service" | "calendar" | "schedule";

/** The user's own presence: the true status, even while invisible. */
export interface Me {
  readonly status: Status;
  readonly mode: Mode;
  /** The end of the mode in epoch milliseconds; null: no end. */
  readonly until: number | null;
  readonly custom: Custom | null;
  readonly devices: readonly Device[];
  /** The source of the mode; undefined: no source has a mode. */
  readonly modeSource?: Source;
  readonly customSource?: Source;
}

/**
 * An end time: epoch milliseconds, a Date, an RFC 3339 string with a time zone, or a local time of day ("17:00": its next
 * occurrence).
 */
export type Until = number | Date | string;

/** What `me.set` changes. What is left out stays unchanged. */
export interface Choice {
  mode?: Mode;
  /** `text` and `emoji` together are the custom status; empty or null clears it. */
  text?: string | null;
  emoji?: string | null;
  /** Applies to everything in this choice; null or undefined: no end. */
  until?: Until | null;
}

/** The place of typing: to a user, or in a room. */
export type Place = { to: Id } | { room: Id };

/** A user started or stopped typing. */
export interface Typing {
  readonly user: string;
  /** The id of this client's user if the typing is directed to that user; undefined in a room. */
  readonly to?: string;
  readonly room?: string;
  /** False when the user stops typing. The client always reports the stop, even if the other device disappears. */
  readonly typing: boolean;
}

/**
 * In the phases `signed_out` (no user is signed in at the application) and `closed` the client does not reconnect until
 * `connect` is called.
 */
export type Phase = "connecting" | "connected" | "reconnecting" | "signed_out" | "closed";

/** The state of the connection. */
export interface State {
  readonly phase: Phase;
  /** The close code of the connection that ended; undefined if there was none. */
  readonly code?: number;
  /**
   * Why it is `reconnecting` or `closed`: the reason of the close frame, or `token_failed` (no token to be had),
   * `unreachable` (no connection was established), `no_answer` or `connection_lost`.
   */
  readonly reason?: string;
  /** Milliseconds until the next attempt; undefined unless `phase` is `reconnecting`. */
  readonly retryIn?: number;
}

/** A JWT, the address of an endpoint that answers with one, or a function (sync or async) that returns one. */
export type TokenSource = string | (() => string | null | undefined | Promise<string | null | undefined>);

export interface Options {
  /**
   * The address of your token endpoint (a string with a slash, for example `/presence-token`), a function (sync or async)
   * that returns a JWT, or a JWT. Endpoint and function are asked again before the token expires, and after 1 s, doubling to
   * at most 30 s, if they fail, do not answer within 10 s or answer something else. No user is signed in if the endpoint
   * answers 204 or 401, or the function returns null, undefined or "": the state is then `signed_out`.
   */
  token: TokenSource;
  /** Default `web`. */
  platform?: Platform;
  /** By default a random id, kept in `localStorage` where that is allowed. */
  deviceId?: Id;
  /** The WebSocket class to use. Node before 22 has none: `import WebSocket from "ws"`. */
  WebSocket?: WebSocketClass;
  /** True (default): one socket for all tabs of a browser. False: one for each tab. */
  shareTabs?: boolean;
  /** True (default): clicks, keys and the page becoming visible count as activity. False: call `active()` yourself. */
  activity?: boolean;
}

export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

/** The part of a WebSocket that is used here: that of browsers, of Node and of `ws` fit. */
export interface WebSocketLike {
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

// The wire

export interface WireStatus {
  user_id: string;
  status: Exclude<Status, "unknown">;
  since: number | null;
  last_seen: number | null;
  last_seen_bucket?: string;
  custom_status: WireCustom | null;
  platforms: Platform[];
  as_of: number;
  stale?: boolean;
  delivery?: string;
}

export interface WireCustom {
  text: string;
  emoji: string;
  expires_at: number | null;
}

export interface Denial {
  target_user_id: string;
  reason: string;
}

/** A frame of either direction; its `type` determines the other fields. */
export interface Frame {
  type: string;
  id?: string | number;
  [field: string]: any;
}
