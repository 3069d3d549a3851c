/**
 * The words of this package: what goes in, what comes out, and what travels between.
 *
 * What the application sees is written the way JavaScript is (`lastSeen`); what the server says is kept as it is said
 * (`last_seen`), with `Wire` in its name. Only types: nothing here is left after compiling.
 */

/** `unknown`: nothing is known yet, or the server would not say (see `denied`). */
export type Status = "online" | "away" | "busy" | "offline" | "unknown";
export type Mode = "auto" | "busy" | "away" | "invisible";
export type Platform = "web" | "desktop" | "mobile" | "other";

/** A user, device or room: 1 to 128 bytes of UTF-8 in NFC without whitespace, control characters or comma. */
export type Id = string | number;

export interface Custom {
  readonly text: string;
  readonly emoji: string;
  /** Epoch milliseconds; null: no end. */
  readonly expiresAt: number | null;
}

/** What may be shown of somebody. Never changed in place: a new value is a new object. */
export interface Presence {
  readonly user: string;
  readonly status: Status;
  /** Instants are epoch milliseconds. */
  readonly since: number | null;
  readonly lastSeen: number | null;
  /** Instead of `lastSeen`, when the exact time is not for us. */
  readonly lastSeenBucket?: string;
  readonly custom: Custom | null;
  readonly platforms: readonly Platform[];
  /** When the server knew this to be true. */
  readonly asOf: number;
  /** It was so; whether it still is, nobody can tell at the moment. Show the dot, but pale. */
  readonly stale: boolean;
  /** `paced`: may come some seconds late. `poll`: will not be pushed. Absent: live. */
  readonly delivery?: string;
  /** The server would not say: `not_mutual_followers`, `too_many_subscriptions` or `invalid_user_id`. */
  readonly denied?: string;
}

export interface Device {
  readonly deviceId: string;
  readonly platform: Platform;
  readonly active: boolean;
  readonly since: number;
}

/** One's own presence: the truth, also while invisible. */
export interface Me {
  readonly status: Status;
  readonly mode: Mode;
  readonly until: number | null;
  readonly custom: Custom | null;
  readonly devices: readonly Device[];
}

/** Epoch milliseconds, a Date, RFC 3339 with a zone, or a time of day here ("17:00": its next occurrence). */
export type Until = number | Date | string;

/** What is not mentioned stays as it is. `until` is the end of everything that is mentioned. */
export interface Choice {
  mode?: Mode;
  /** With `emoji` the custom status; empty or null without the other clears it. */
  text?: string | null;
  emoji?: string | null;
  until?: Until | null;
}

export type Place = { to: Id } | { room: Id };

export interface Typing {
  readonly user: string;
  /** Ourselves, when it is meant for us alone. */
  readonly to?: string;
  readonly room?: string;
  /** False: no longer. It always comes, also when the other side vanishes. */
  readonly typing: boolean;
}

export type Phase = "connecting" | "connected" | "reconnecting" | "closed";

export interface State {
  readonly phase: Phase;
  /** Why the connection ended, if one did. */
  readonly code?: number;
  readonly reason?: string;
  /** Milliseconds until the next try. */
  readonly retryIn?: number;
}

export type TokenSource = string | (() => string | null | undefined | Promise<string | null | undefined>);

export interface Options {
  /** A JWT, or what gives one; asked again when it ends. Null or nothing: nobody is signed in, so do not connect. */
  token: TokenSource;
  platform?: Platform;
  /** Kept in `localStorage` otherwise, where that is allowed. */
  deviceId?: Id;
  /** For Node before 22, which has none: `import WebSocket from "ws"`. */
  WebSocket?: WebSocketClass;
  /** One socket for all tabs of a browser (true), or one for each. */
  shareTabs?: boolean;
  /** Clicks, keys and a page that comes to the front are activity (true); otherwise call `active()`. */
  activity?: boolean;
}

export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

/** As much of a WebSocket as is used here: the browser's, Node's and that of `ws` fit. */
export interface WebSocketLike {
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

// What travels.

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

/** A frame of either direction; its `type` says what else is in it. */
export interface Frame {
  type: string;
  id?: string | number;
  [field: string]: any;
}
