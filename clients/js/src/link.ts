/**
 * A WebSocket connection that reconnects: token, socket, heartbeats, subscriptions, back-off.
 *
 * It interprets only the welcome frame and the replies to subscriptions; all other frames go to the listener. A network
 * failure is a `State`, never an exception. Every wait is a timer that `stop` cancels.
 */
import { afterClose, counted, delay, retryAfter } from "./backoff.js";
import { now } from "./clock.js";
import { Interest, type Wants } from "./interest.js";
import { Timers } from "./timers.js";
import { ANSWER, PATIENCE, REFUSALS, SPARE, STEADY } from "./timing.js";
import { claims } from "./token.js";
import type { Frame, State, WebSocketClass, WebSocketLike } from "./types.js";


/** Receives state changes and frames. */
export type Listener = (said: { state?: State; frames?: Frame[] }) => void;

export interface LinkOptions {
  token(): string | null | undefined | Promise<string | null | undefined>;
  WebSocket?: WebSocketClass;
}

export class Link {
  #tell: Listener;
  #url: string;
  #options: LinkOptions;
  #interest = new Interest();
  #socket: WebSocketLike | undefined;
  /** Incremented for each attempt; async work that began under another number is outdated and stops. */
  #turn = 0;
  #stopped = true;
  #welcome: Frame | undefined;

  #failures = 0;
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

  /** Connect unless already started; with `token`, if given, instead of requesting one. */
  start(token?: string): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#failures = this.#refusals = this.#notBefore = 0;
    this.#refused = undefined;
    this.#token = token;
    this.#tell({ state: { phase: "connecting" } });
    void this.#connect();
  }

  /** Close and do not reconnect until the next `start`. */
  stop(code?: number, reason?: string): void {
    this.#forsake();
    if (this.#stopped) return;
    this.#stopped = true;
    this.#tell({ state: { phase: "closed", code, reason } });
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

  async #connect(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const token = this.#token !== this.#refused && this.#left() > SPARE / 2 ? this.#token : await this.#options.token();
      if (turn !== this.#turn) return;
      if (!token) return this.stop(4401, "token_missing");
      if (token === this.#refused) return this.stop(4401, "token_refused");
      if (!this.#accepts(token)) return;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#tokenFailed(error);
      return this.#retry({ reason: "token_failed" });
    }
    try {
      this.#open(this.#token!);
    } catch (error) {
      // A wrong address, or no WebSocket class: a retry would fail the same way.
      this.stop(undefined, String(error));
    }
  }

  /** False, and closed, if another user signed in: the presences and subscriptions held here belong to the previous user. */
  #accepts(token: string): boolean {
    const { sub } = claims(token);
    const same = (this.#sub ??= sub) === sub;
    same ? (this.#token = token) : this.stop(4401, "token_other_user");
    return same;
  }

  #open(token: string): void {
    const Socket = this.#options.WebSocket ?? (globalThis as any).WebSocket;
    const socket: WebSocketLike = new Socket(this.#url, ["herenow.v1", "herenow.token." + token]);
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
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
    if (this.#welcome) for (const frame of this.#interest.frames(this.#welcome.limits.frame)) this.send(frame);
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
    const left = this.#left();
    if (left > 0) this.#timers.in(Math.max(PATIENCE, left - Math.min(SPARE, left / 5)), "refresh", () => void this.#refresh());
  }

  /** Milliseconds until the token expires, by the server's clock; negative if it is expired or has no expiry. */
  #left(): number {
    return (claims(this.#token ?? "").exp ?? 0) * 1000 - now() - this.#skew;
  }

  async #refresh(): Promise<void> {
    const turn = this.#turn;
    try {
      const token = await this.#options.token();
      if (turn !== this.#turn) return;
      if (token && token !== this.#token && this.#accepts(token)) this.send({ type: "presence.refresh", token });
    } catch (error) {
      // The connection may last until the token expires; a reconnect then requests a token again.
      if (turn !== this.#turn) return;
      this.#tokenFailed(error);
    }
    if (this.#welcome) this.#refreshLater();
  }

  #tokenFailed(error: unknown): void {
    this.#tell({ frames: [{ type: "presence.error", code: "token_failed", message: String(error) }] });
  }

  // Closing

  #closed(code: number, reason: string): void {
    this.#forsake();
    const verdict = afterClose(code);
    if (verdict === "stop") return this.stop(code, reason);
    if (verdict === "token") {
      if (++this.#refusals > REFUSALS) return this.stop(code, reason);
      this.#refused = this.#token;
    }
    this.#failures = counted(this.#failures, verdict);
    this.#retry({ code, reason });
  }

  #retry(why: { code?: number; reason: string }): void {
    const asked = retryAfter(why.reason);
    const wait = delay(this.#failures++, Math.random(), asked);
    this.#notBefore = now() + asked;
    this.#again(wait);
    this.#tell({ state: { phase: "reconnecting", ...why, retryIn: wait } });
  }

  #again(wait: number): void {
    this.#timers.in(wait, "retry", () => void this.#connect());
  }

  /** Drop the socket without waiting for its close event, which may take minutes. */
  #forsake(): void {
    this.#turn++;
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
  }}
