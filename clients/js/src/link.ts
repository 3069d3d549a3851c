/**
 * One connection that comes back: token, socket, beats, and what to do when it ends.
 *
 * It keeps the socket alive and says what comes through it; what the frames mean is not known here (but for the welcome,
 * and for what is needed to subscribe again). Every wait is a timer that `stop` ends, no failure is an exception.
 */
import { afterClose, counted, delay, retryAfter } from "./backoff.js";
import { now } from "./clock.js";
import { Interest, type Wants } from "./interest.js";
import { Timers } from "./timers.js";
import { ANSWER, PATIENCE, REFUSALS, SPARE, STEADY } from "./timing.js";
import { claims } from "./token.js";
import type { Frame, State, WebSocketClass, WebSocketLike } from "./types.js";


/** How the connection is, or what came through it. */
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
  /** Who was started in another turn has been overtaken. */
  #turn = 0;
  #stopped = true;
  #welcome: Frame | undefined;

  #failures = 0;
  #refusals = 0;
  #notBefore = 0;
  #token: string | null | undefined;
  #refused: string | null | undefined;
  /** Whose tokens they are: a link is one person's. */
  #sub: unknown;
  /** The server's clock less ours, in ms: a wrong clock here must not end a token early. */
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

  /** Connect, unless that is under way; with the token, if one is given. */
  start(token?: string): void {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#failures = this.#refusals = this.#notBefore = 0;
    this.#refused = undefined;
    this.#token = token;
    this.#tell({ state: { phase: "connecting" } });
    void this.#connect();
  }

  /** For good, or until the next `start`. */
  stop(code?: number, reason?: string): void {
    this.#forsake();
    if (this.#stopped) return;
    this.#stopped = true;
    this.#tell({ state: { phase: "closed", code, reason } });
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
    if (!this.#timers.has("ask")) this.#ask();
  }

  /** The person did something. Goes with the next beat; at once if they were, or may look, idle. */
  active(): void {
    const looksIdle = this.#idle || now() - this.#actedAt > (this.#welcome?.idle_after ?? 0) * 500;
    this.#actedAt = now();
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
      // A wrong address, or no WebSocket at all: another try would end the same way.
      this.stop(undefined, String(error));
    }
  }

  /** False: somebody else has signed in. What is known and wanted here is not theirs. */
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
    this.#beatLater();
    if (!this.#idle && !this.#acted && now() - this.#actedAt >= this.#welcome!.idle_after * 1000) this.idle();
    else if (now() - this.#heardAt > 3 * this.#welcome!.beat_every * 1000) this.#probe();
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
    const left = this.#left();
    if (left > 0) this.#timers.in(Math.max(PATIENCE, left - Math.min(SPARE, left / 5)), "refresh", () => void this.#refresh());
  }

  /** Milliseconds that the token has yet; if it does not say, none. */
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
      // The connection may live a little longer; if it ends, the token is asked for again.
      if (turn !== this.#turn) return;
      this.#tokenFailed(error);
    }
    if (this.#welcome) this.#refreshLater();
  }

  #tokenFailed(error: unknown): void {
    this.#tell({ frames: [{ type: "presence.error", code: "token_failed", message: String(error) }] });
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
    this.#notBefore = now() + asked;
    this.#again(wait);
    this.#tell({ state: { phase: "reconnecting", ...why, retryIn: wait } });
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
  }}
