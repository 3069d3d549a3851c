/** Texts about presences. Pure: `now` is an argument, in the server's time. */
import type { Me, Presence } from "../src/types.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const BUCKETS: Record<string, string> = {
  recently: "Last seen recently",
  within_week: "Last seen within a week",
  within_month: "Last seen within a month",
  long_ago: "Last seen long ago",
};

/** A user's presence in one line. */
export function sentence(person: Presence, now: number): string {
  const said = plain(person, now);
  return person.stale ? `${said} · last known` : said;
}

function plain({ status, since, lastSeen, lastSeenBucket, platforms }: Presence, now: number): string {
  if (status === "online") return platforms.length === 1 && platforms[0] === "mobile" ? "Online, on the phone" : "Online";
  if (status === "away") return since !== null && now - since >= MINUTE ? `Away for ${span(now - since)}` : "Away";
  if (status === "busy") return "Do not disturb";
  if (status === "unknown") return "Not known yet";
  if (lastSeen !== null) return `Last seen ${ago(lastSeen, now)}`;
  return BUCKETS[lastSeenBucket ?? ""] ?? "Offline";
}

/** The line under the user's own name. */
export function own(me: Me | undefined): string {
  if (!me) return "…";
  const end = me.until === null ? "" : ` until ${clock(me.until)}`;
  if (me.mode === "invisible") return `Invisible${end}: others see you offline`;
  if (me.mode === "busy") return `Do not disturb${end}`;
  if (me.mode === "away") return `Away${end}`;
  const devices = me.devices.length;
  return devices > 1 ? `Available on ${devices} devices` : me.status === "away" ? "Available, but away" : "Available";
}

export function custom(person: { custom: Presence["custom"] }): string {
  return person.custom ? `${person.custom.emoji} ${person.custom.text}`.trim() : "";
}

/** "12 min ago", "today at 14:02", "on 3 May". */
export function ago(at: number, now: number): string {
  const gone = now - at;
  if (gone < MINUTE) return "just now";
  if (gone < HOUR) return `${span(gone)} ago`;
  const days = Math.round((midnight(now) - midnight(at)) / (24 * HOUR));
  if (days === 0) return `today at ${clock(at)}`;
  if (days === 1) return `yesterday at ${clock(at)}`;
  return `on ${new Date(at).toLocaleDateString("en", { day: "numeric", month: "long" })}`;
}

function span(ms: number): string {
  return ms < HOUR ? `${Math.floor(ms / MINUTE)} min` : `${Math.floor(ms / HOUR)} h`;
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

function midnight(at: number): number {
  return new Date(at).setHours(0, 0, 0, 0);
}

/** The display name of a demo user: the id with a capital letter. */
export function name(user: string): string {
  return /^[a-z]+$/.test(user) ? user[0]!.toUpperCase() + user.slice(1) : user;
}

/** The user's colour as a hue from 0 to 359. */
export function hue(user: string): number {
  let sum = 7;
  for (const letter of user) sum = (sum * 31 + letter.codePointAt(0)!) % 3600;
  return (sum * 137) % 360;
}
