/**
 * One connection that comes back: token, socket, beats, and what to do when it ends.
 *
 * It keeps the socket alive and says what comes through it; what the frames mean is not known here (but for the welcome,
 * and for what is needed to subscribe again). Every wait is a timer that `stop` ends, no failure is an exception.
 */
import { afterClose, counted, delay, retryAfter } from "./backoff.js";
import { Interest, type Wants } from "./interest.js";
import { Timers } from "./timers.js";
import { claims } from "./token.js";
import type { Frame, State, WebSocketClass, WebSocketLike } from "./types.js";

const BATCH = 10; // ms: what is wanted within it is asked for in one frame
const ANSWER = 10_000; // ms: a server that has not answered by then is not there
const STEADY = 10_000; // ms: a connection that lived so long is not a failed try
const REFUSALS = 3; // tokens refused one after the other: a fourth would be too
const SPARE = 60; // s: a token is renewed so long before its end, or at a fifth of what is left of it

export interface Listener {
  frame(frame: Frame): void;
  state(state: State): void;
  error(code: string, message: string): void;
}

export interface LinkOptions {
  token(): string | null | undefined | Promise<string | null | undefined>;
  WebSocket?: WebSocketClass;
}

export class Link {
  #listener: Listener;
  #url: string;
  #options: LinkOptions;
  #interest = new Interest();
  #socket: WebSocketLike | undefined;
  /** Who was started in another turn has been overtaken. */
  #turn = 0;
  #stopped = true;
  #welcome: Frame | undefined;

  #failures = 0;
  #refusals = 0;
  #notBefore = 0;
  #token: string | null | undefined;
  #refused: string | null | undefined;
  /** The server's clock less ours, in ms: a wrong clock here must not end a token early. */
  #skew = 0;

  #timers = new Timers();
  #heardAt = 0;
  #actedAt = Date.now();
  #acted = false;
  #idle = false;

  constructor(url: string, options: LinkOptions, listener: Listener) {
    this.#url = url;
    this.#options = options;
    this.#listener = listener;
  }

  /** Connect, unless that is under way; with the token, if one is given. */
  start(token?: string): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#failures = this.#refusals = this.#notBefore = 0;
    this.#refused = undefined;
    if (token) this.#token = token;
    this.#listener.state({ phase: "connecting" });
    void this.#connect();
  }

  /** For good, or until the next `start`. */
  stop(code?: number, reason?: string): void {
    this.#forsake();
    if (this.#stopped) return;
    this.#stopped = true;
    this.#listener.state({ phase: "closed", code, reason });
  }

  /** False: there is no connection, and it was not sent. */
  send(frame: Frame): boolean {
    if (!this.#welcome || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  want(wants: Wants, again: string[] = []): void {
    this.#interest.want(wants);
    this.#interest.again(again);
    if (!this.#timers.has("ask")) this.#timers.in(BATCH, "ask", () => this.#ask());
  }

  /** The person did something. Goes with the next beat; at once if they were, or may look, idle. */
  active(): void {
    const now = Date.now();
    const looksIdle = this.#idle || now - this.#actedAt > (this.#welcome?.idle_after ?? 0) * 500;
    this.#actedAt = now;
    this.#idle = false;
    this.#acted = !(looksIdle && this.send({ type: "presence.active" }));
  }

  /** This device is idle now. */
  idle(): void {
    this.#idle = true;
    this.#acted = false;
    this.send({ type: "presence.away" });
  }

  /** The page or the network has come back: is the connection still there? If not, do not wait for long. */
  wake(): void {
    if (this.#welcome) this.#probe();
    else if (this.#timers.has("retry")) this.#again(Math.max(this.#notBefore - Date.now(), delay(0, Math.random())));
  }

  // Connecting

  async #connect(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const token = await this.#freshToken();
      if (turn !== this.#turn) return;
      if (!token || token === this.#refused) return this.stop(4401, token ? "token_refused" : "token_missing");
      this.#token = token;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#tokenFailed(error);
      return this.#retry({ reason: "token_failed" });
    }
    try {
      this.#open(this.#token);
    } catch (error) {
      // A wrong address, or no WebSocket at all: another try would end the same way.
      this.stop(undefined, String(error));
    }
  }

  async #freshToken(): Promise<string | null | undefined> {
    const left = (claims(this.#token ?? "").exp ?? 0) - this.#serverTime() / 1000;
    return this.#token !== this.#refused && left > SPARE / 2 ? this.#token : await this.#options.token();
  }

  #open(token: string): void {
    const Socket = this.#options.WebSocket ?? (globalThis as any).WebSocket;
    const socket: WebSocketLike = new Socket(this.#url, ["herenow.v1", "herenow.token." + token]);
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = ({ code, reason }) => this.#closed(code, reason);
    socket.onerror = () => {}; // a close follows
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
    this.#heardAt = Date.now();
    this.#timers.cancel("answer");
    if (frame.type === "presence.welcome") this.#welcomed(frame);
    if (this.#interest.hear(frame)) this.#timers.in(delay(1, Math.random()), "ask", () => this.#ask());
    else this.#listener.frame(frame);
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
    this.#listener.state({ phase: "connected" });
    if (this.#idle) this.idle(); // to come back is not to act
    if (this.#acted) this.#acted = !this.send({ type: "presence.active" });
    this.#ask();
  }

  #ask(): void {
    if (this.#welcome) for (const frame of this.#interest.frames(this.#welcome.limits.frame)) this.send(frame);
  }

  // Staying

  #beatLater(): void {
    this.#timers.in(this.#welcome!.beat_every * 1000, "beat", () => this.#beat());
  }

  #beat(): void {
    const now = Date.now();
    this.#beatLater();
    if (!this.#idle && !this.#acted && now - this.#actedAt >= this.#welcome!.idle_after * 1000) this.idle();
    else if (now - this.#heardAt > 3 * this.#welcome!.beat_every * 1000) this.#probe();
    else {
      this.send({ type: "presence.heartbeat", ...(this.#acted && { activity_type: "active" }) });
      this.#acted = false;
    }
  }

  /** A beat that wants an answer: a browser does not tell that the other side is gone. */
  #probe(): void {
    this.send({ type: "presence.heartbeat", id: "beat" });
    this.#expectAnswer();
  }

  #refreshLater(): void {
    const left = (claims(this.#token ?? "").exp ?? NaN) * 1000 - this.#serverTime();
    if (left > 0) this.#timers.in(left - Math.min(SPARE * 1000, left / 5), "refresh", () => void this.#refresh());
  }

  async #refresh(): Promise<void> {
    const turn = this.#turn;
    try {
      const token = await this.#options.token();
      if (turn !== this.#turn || !token || token === this.#token) return;
      this.#token = token;
      if (this.send({ type: "presence.refresh", token })) this.#refreshLater();
    } catch (error) {
      // The connection may live a little longer; when it ends, the token is asked for again.
      this.#tokenFailed(error);
    }
  }

  #tokenFailed(error: unknown): void {
    this.#listener.error("token_failed", String(error));
  }

  // Ending

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
    this.#notBefore = Date.now() + asked;
    this.#again(wait);
    this.#listener.state({ phase: "reconnecting", ...why, retryIn: wait });
  }

  #again(wait: number): void {
    this.#timers.in(wait, "retry", () => void this.#connect());
  }

  /** Leave the socket to itself: its close may take minutes to be heard of. */
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
      // It was never open.
    }
  }

  // Small things

  #serverTime(): number {
    return Date.now() + this.#skew;
  }
}
