/** The banner's text for a connection state, if it needs one. */
import type { State } from "../src/types.js";

export interface Notice {
  text: string;
  /** The label of a button that reconnects. */
  act?: string;
}

export function notice({ phase, code, reason }: State): Notice | undefined {
  if (phase === "connected") return;
  if (phase === "connecting") return { text: "Connecting…" };
  if (phase === "reconnecting") {
    const why = reason === "token_failed" ? "No token is to be had" : "The connection is lost";
    return { text: `${why}. What you see is what was last known; it comes back by itself.` };
  }
  if (phase === "signed_out") return { text: "No user is signed in.", act: "Sign in" };
  if (code === 1000 || code === 4409) return { text: "You are signed out on this device, and offline at once.", act: "Come back" };
  if (code === 4401) return { text: `The server refuses the token (${reason || "no reason given"}).`, act: "Try again" };
  return { text: `The connection is closed (${[code, reason].filter(Boolean).join(" ") || "by this page"}).`, act: "Connect" };
}
