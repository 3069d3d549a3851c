/** A real `herenow serve`, which can be killed and started again at the same address. */
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import WebSocket from "ws";
import { Herenow } from "../../dist/herenow.js";

const PYTHON = process.env.HERENOW_PYTHON ?? new URL("../../../../.venv/bin/python", import.meta.url).pathname;
const SECRET = "a secret for the javascript tests, long enough";
const PATIENCE = 60_000; // ms: an end to waiting, not a promise

export class Server {
  constructor(settings = {}) {
    this.settings = { beat_every: 1, dead_after: 3, grace: 3, ledger_flush: 0.1, port: 0, ...settings };
    this.folder = mkdtempSync(join(tmpdir(), "herenow-js-"));
  }

  async start() {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HERENOW_")));
    for (const [name, value] of Object.entries(this.settings)) env[`HERENOW_${name.toUpperCase()}`] = String(value);
    env.HERENOW_SECRET = SECRET;
    const started = spawn(PYTHON, ["-m", "herenow.cli", "serve"], { cwd: this.folder, env, stdio: ["ignore", "pipe", "pipe"] });
    this.process = started;
    let log = "";
    started.stderr.on("data", (chunk) => (log += chunk));
    await new Promise((resolve, reject) => {
      let said = "";
      const timer = setTimeout(() => reject(new Error(`not here: ${log}`)), PATIENCE);
      started.once("exit", (code) => (clearTimeout(timer), reject(new Error(`ended with ${code}: ${log}`))));
      started.stdout.on("data", (chunk) => {
        said += chunk;
        const found = /is here: (http:\/\/\S+)/.exec(said);
        if (!found) return;
        clearTimeout(timer);
        this.url = found[1];
        this.settings.port = new URL(this.url).port;
        resolve();
      });
    });
    return this;
  }

  async end(signal) {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill(signal);
    await gone;
  }

  async remove() {
    await this.end("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  async befriend(...users) {
    for (const a of users) for (const b of users) if (a !== b) await this.rest("PUT", `/follows/${a}/${b}`);
  }

  async rest(method, path, body) {
    const answer = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${token("backend", { scope: "service" })}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.status === 204 ? null : answer.json();
  }

  /** A client of a user; `ttl` is the lifetime of its tokens in seconds. */
  client(user, { ttl = 3600, ...options } = {}) {
    const url = this.url.replace("http", "ws") + "/ws/presence";
    return new Herenow(url, { token: () => token(user, { ttl }), WebSocket, shareTabs: false, ...options });
  }
}

export function token(user, { ttl = 3600, scope } = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Date.now() / 1000;
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: user, iat: now, exp: now + ttl, scope })}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

/** Wait until `holds` is true; it is called at first and for every event of the listener passed to `on`. */
export async function until(on, holds, what) {
  let stop = () => {};
  let timer;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), PATIENCE);
      stop = on((event) => holds(event) && resolve());
      if (holds()) resolve();
    });
  } finally {
    clearTimeout(timer);
    stop();
  }
}

export const phase = (here, wanted) => until((look) => here.onState(look), () => here.state.phase === wanted, wanted);
export const sees = (here, user, wanted) =>
  until(
    (look) => here.watch([user], look),
    () => here.get(user).status === wanted && !here.get(user).stale,
    `${user} ${wanted}`,
  );
