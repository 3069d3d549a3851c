/**
 * The `presence.set` frame for a mode and custom status. Pure; tested by spec/vectors/choices.json.
 *
 * A time of day such as "17:00" becomes its next occurrence in the local time zone; the server parses all other formats.
 */
import type { Choice, Frame, Until } from "./types.js";

export function setFrame({ mode, text, emoji, until }: Choice, now: number): Frame {
  const frame: Frame = { type: "presence.set" };
  const end = instant(until, now);
  if (mode) frame.mode = mode;
  if (mode && mode !== "auto" && end !== null) frame.until = end;
  if (text !== undefined || emoji !== undefined) {
    frame.custom_status = text || emoji ? { text: text ?? "", emoji: emoji ?? "", expires_at: end } : null;
  }
  return frame;
}

export function instant(value: Until | null | undefined, now: number): number | string | null {
  if (value instanceof Date) return value.getTime();
  const time = typeof value === "string" && /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(value);
  if (!time) return (value as number | string) ?? null;
  const at = new Date(now);
  at.setHours(+time[1]!, +time[2]!, 0, 0);
  if (at.getTime() <= now) at.setDate(at.getDate() + 1);
  return at.getTime();
}
