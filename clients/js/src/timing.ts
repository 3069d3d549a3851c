/** All delays, in milliseconds. They are in one place because they depend on each other and on the server's. */

export const ANSWER = 10_000; // without a response by then, the server counts as unreachable
export const STEADY = 10_000; // after this time a connection resets the count of failures
export const REFUSALS = 3; // refused tokens in a row (not ms) after which the client stops trying
export const SPARE = 60_000; // a token is renewed this long before it expires, or when a fifth of its time remains if that is shorter
export const PATIENCE = 1_000; // shortest time between two attempts to renew the token

export const BATCH = 10; // subscriptions requested within this time go out in one frame
export const LINGER = 1_000; // from the last watcher's end to unsubscribing: lists scroll back and forth
export const STALE = 2_000; // without a connection until presences are flagged stale: a quick reconnect should not make dots blink
export const EVERY = 5_000; // between two reports of activity: more are of no use
export const TYPING = 4_000; // between two typing frames for the same place (the server forgets after 6 s)

export const KNOCK = 20_000; // between two messages to the leading tab
export const SILENCE = 3_000; // without an answer of the leading tab until a visible tab takes over
export const FORGOTTEN = 300_000; // without a message of a tab until it is dropped; timers of background pages run once a minute
