/** How long is waited for what, in milliseconds. In one place: they lean on each other and on the server's. */

export const ANSWER = 10_000; // a server that has not answered by then is not there
export const STEADY = 10_000; // a connection that lived so long is not a failed try
export const REFUSALS = 3; // tokens (not milliseconds) refused one after the other: a fourth would be too
export const SPARE = 60_000; // a token is renewed so long before its end, or at a fifth of what is left of it
export const PATIENCE = 1_000; // between two tries to renew it, at the least

export const BATCH = 10; // what is wanted within it is asked for in one frame
export const LINGER = 1_000; // that nobody looks before the server is told: lists scroll back and forth
export const STALE = 2_000; // without a connection, then what we know is called stale: a reconnect should not make dots blink
export const EVERY = 5_000; // between two signs that the person acts: more often tells nobody anything
export const TYPING = 4_000; // between two frames that say the same (the server forgets after 6 s)

export const KNOCK = 20_000; // between two signs of life to the tab that leads
export const SILENCE = 3_000; // without an answer from it, while somebody looks
export const FORGOTTEN = 300_000; // without a sign from a tab; the timers of a page in the background run once a minute
