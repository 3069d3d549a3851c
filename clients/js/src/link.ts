/**
 * A WebSocket connection that reconnects: token, socket, heartbeats, subscriptions, back-off.
 *
 * It interprets only the welcome frame and the replies to subscriptions; all other frames go to the listener. A network
 * failure is a `State`, never an exception. Every wait is a timer that `stop` cancels.
 */
import { afterClose, counted, delay, retryAfter, tokenDelay } from "./backoff.js";
import { now } from "./clock.js";
import { Interest, type Wants } from "./interest.js";
import { Timers } from "./timers.js";
import { ANSWER, PATIENCE, REFUSALS, SPARE, STEADY } from "./timing.js";
import { claims } from "./token.js";
import type { Frame, State, WebSocketClass, WebSocketLike } from "./types.js";


/** Receives state changes and frames. */
export type Listener = (said: { state?: State; frames?: Frame[] }) => void;

export interface LinkOptions {
  /** Rejects if there is no token to be had now; resolves to a falsy value if no user is signed in. */
  token(): Promise<string | null | undefined>;
  WebSocket?: WebSocketClass;
}

export class Link {
  #tell: Listener;
  #url: string;
  #options: LinkOptions;
  #interest = new Interest();
  #socket: WebSocketLike | undefined;
  /** Incremented for each attempt; async work that began under another number is outdated and stops. */
  #attempt = 0;
  #stopped = true;
  #welcome: Frame | undefined;

  #failures = 0;
  /** Failed token requests in a row. */
  #tokenFailures = 0;
  #refusals = 0;
  #notBefore = 0;
  #token: string | null | undefined;
  #refused: string | null | undefined;
  /** The `sub` claim of the first token; a token of another user closes the link. */
  #sub: unknown;
  /** Server time minus the monotonic clock, in ms: a wrong local clock must not make a token appear expired. */
  #skew = Date.now() - now();

  #timers = new Timers();
  #heardAt = 0;
  #actedAt = now();
  #acted = false;
  #idle = false;

  constructor(url: string, options: LinkOptions, tell: Listener) {
    this.#url = url;
    this.#options = options;
    this.#tell = tell;
  }

  /** Connect with `token`, or with a new one if it expires soon. Nothing happens if already started. */
  start(token?: string): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#failures = this.#tokenFailures = this.#refusals = this.#notBefore = 0;
    this.#refused = undefined;
    this.#token = token;
    this.#sub ??= claims(token!).sub;
    this.#tell({ state: { phase: "connecting" } });
    this.#connect();
  }

  /** Close and do not reconnect until the next `start`. */
  stop(code?: number, reason?: string): void {
    this.#end({ phase: "closed", code, reason });
  }

  /** False if there is no connection; the frame was then not sent. */
  send(frame: Frame): boolean {
    if (!this.#welcome || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  want(wants: Wants, again: string[] = []): void {
    this.#interest.want(wants);
    this.#interest.again(again);
    if (!this.#timers.has("ask")) this.#ask();
  }

  /** Report user activity: with the next heartbeat, or at once if the user was idle or may appear idle. */
  active(): void {
    const looksIdle = this.#idle || now() - this.#actedAt > (this.#welcome?.idle_after ?? 0) * 500;
    this.#actedAt = now();
    this.#idle = false;
    this.#acted = !(looksIdle && this.send({ type: "presence.active" }));
  }

  /** Report at once that the user is idle on this device. */
  idle(): void {
    this.#idle = true;
    this.#acted = false;
    this.send({ type: "presence.away" });
  }

  /** Call this when the page or the network comes back: check the connection, or shorten the wait for the next attempt. */
  wake(): void {
    if (this.#welcome) this.#probe();
    else if (this.#timers.has("retry")) this.#again(Math.max(this.#notBefore - now(), delay(0, Math.random())));
  }

  // Connecting

  #connect(): void {
    this.#attempt++;
    if (this.#token !== this.#refused && this.#timeLeft() > SPARE / 2) return this.#open();
    this.#renew(
      () => (this.#token === this.#refused ? this.stop(4401, "token_refused") : this.#open()),
      () => this.#retry({ reason: "token_failed" }, tokenDelay(this.#tokenFailures)),
    );
  }

  /** Request a token, then call `done` or `failed`; neither if the link ends by it or the attempt is outdated meanwhile. */
  #renew(done: () => void, failed: () => void): void {
    const attempt = this.#attempt;
    this.#options.token().then(
      (token) => {
        if (attempt !== this.#attempt) return;
        this.#tokenFailures = 0;
        if (!token) return this.#end({ phase: "signed_out" });
        // Another user signed in: the presences and subscriptions held here belong to the previous user.
        if (claims(token).sub !== this.#sub) return this.stop(4401, "token_other_user");
        this.#token = token;
        done();
      },
      (error) => {
        if (attempt !== this.#attempt) return;
        this.#tokenFailures++;
        this.#tell({ frames: [{ type: "presence.error", code: "token_failed", message: String(error) }] });
        failed();
      },
    );
  }

  #open(): void {
    let socket: WebSocketLike;
    try {
      const Socket = this.#options.WebSocket ?? (globalThis as any).WebSocket;
      socket = new Socket(this.#url, ["herenow.v1", "herenow.token." + this.#token]);
    } catch (error) {
      // A wrong address, or no WebSocket class: a retry would fail the same way.
      return this.stop(undefined, String(error));
    }
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason || (this.#welcome ? "connection_lost" : "unreachable"));
    socket.onerror = () => {}; // a close event follows
    this.#expectAnswer();
  }

  #expectAnswer(): void {
    this.#timers.in(ANSWER, "answer", () => this.#closed(0, "no_answer"));
  }

  #hear(data: string): void {
    let frame: Frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return;
    }
    this.#heardAt = now();
    this.#timers.cancel("answer");
    if (frame.type === "presence.welcome") this.#welcomed(frame);
    if (this.#interest.hear(frame)) this.#timers.in(delay(1, Math.random()), "ask", () => this.#ask());
    else this.#tell({ frames: [frame] });
  }

  #welcomed(frame: Frame): void {
    this.#welcome = frame;
    this.#refused = undefined;
    this.#refusals = 0;
    this.#skew = frame.server_time - this.#heardAt;
    this.#timers.in(STEADY, "steady", () => (this.#failures = 0));
    this.#beatLater();
    this.#refreshLater();
    this.#interest.reset();
    this.#tell({ state: { phase: "connected" } });
    if (this.#idle) this.idle(); // a reconnect is not activity
    if (this.#acted) this.#acted = !this.send({ type: "presence.active" });
    this.#ask();
  }

  #ask(): void {
    const limits = this.#welcome?.limits;
    if (limits) for (const frame of this.#interest.frames(limits.frame, limits.bulk)) this.send(frame);
  }

  // While connected

  #beatLater(): void {
    this.#timers.in(this.#welcome!.beat_every * 1000, "beat", () => this.#beat());
  }

  #beat(): void {
    this.#beatLater();
    if (!this.#idle && !this.#acted && now() - this.#actedAt >= this.#welcome!.idle_after * 1000) this.idle();
    else if (now() - this.#heardAt > 3 * this.#welcome!.beat_every * 1000) this.#probe();
    else {
      this.send({ type: "presence.heartbeat", ...(this.#acted && { activity_type: "active" }) });
      this.#acted = false;
    }
  }

  /** Send a heartbeat that requires a response: a browser does not report that the server disappeared. */
  #probe(): void {
    this.send({ type: "presence.heartbeat", id: "beat" });
    this.#expectAnswer();
  }

  #refreshLater(): void {
    const left = this.#timeLeft();
    const wait = this.#tokenFailures ? tokenDelay(this.#tokenFailures) : Math.max(PATIENCE, left - Math.min(SPARE, left / 5));
    if (this.#tokenFailures || left > 0) this.#timers.in(wait, "refresh", () => this.#refresh());
  }

  /** Milliseconds until the token expires, by the server's clock; negative if it is expired or has no expiry. */
  #timeLeft(): number {
    return (claims(this.#token ?? "").exp ?? 0) * 1000 - now() - this.#skew;
  }

  /** Renew the token. The connection lasts until the token expires, however often this fails. */
  #refresh(): void {
    const before = this.#token;
    const later = () => this.#refreshLater();
    this.#renew(() => {
      if (this.#token !== before) this.send({ type: "presence.refresh", token: this.#token });
      later();
    }, later);
  }

  // Closing

  #closed(code: number, reason: string): void {
    this.#drop();
    const verdict = afterClose(code);
    if (verdict === "stop") return this.stop(code, reason);
    if (verdict === "token") {
      if (++this.#refusals > REFUSALS) return this.stop(code, reason);
      this.#refused = this.#token;
    }
    this.#failures = counted(this.#failures, verdict);
    const asked = retryAfter(reason);
    this.#notBefore = now() + asked;
    this.#retry({ code, reason }, delay(this.#failures++, Math.random(), asked));
  }

  #retry(why: { code?: number; reason: string }, wait: number): void {
    this.#again(wait);
    this.#tell({ state: { phase: "reconnecting", ...why, retryIn: wait } });
  }

  #again(wait: number): void {
    this.#timers.in(wait, "retry", () => this.#connect());
  }

  #end(state: State): void {
    this.#drop();
    if (this.#stopped) return;
    this.#stopped = true;
    this.#tell({ state });
  }

  /** Drop the socket without waiting for its close event, which may take minutes. */
  #drop(): void {
    this.#attempt++;
    this.#timers.clear();
    const socket = this.#socket;
    this.#socket = this.#welcome = undefined;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    try {
      socket.close(1000);
    } catch {
      // it was never open
    }
  }
}
