/** Formats numbers and times. Pure. */
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value).replaceAll(",", "\u202f");
}

/** A short number for an axis: 12k, 1.5M. */
export function short(value: number): string {
  if (Math.abs(value) < 10_000) return String(+value.toFixed(1));
  return value < 1_000_000 ? `${+(value / 1_000).toFixed(1)}k` : `${+(value / 1_000_000).toFixed(1)}M`;
}

export function rate(perSecond: number): string {
  if (perSecond === 0 || perSecond >= 100) return count(perSecond);
  return perSecond < 0.1 ? "<0.1" : perSecond.toFixed(1);
}

export function duration(seconds: number | null): string {
  if (seconds === null) return "–";
  if (seconds >= 60) return `${count(Math.floor(seconds / 60))} min`;
  if (seconds >= 1) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** "1 worker", "2 workers". */
export function many(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
