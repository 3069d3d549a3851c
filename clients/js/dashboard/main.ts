/**
 * The dashboard: requests the server's stats every two seconds and shows them, or a banner if there is no response.
 *
 * A hidden page sends no requests; the server keeps the history of the last five minutes for it.
 */
import { Chart, type Kind } from "./charts.js";
import { Door, refusal } from "./door.js";
import { at, say } from "./elements.js";
import { show } from "./figures.js";
import { last, merged, STEP } from "./series.js";
import { ask, NoAnswer, type Point, type Stats } from "./stats.js";
import { clock, count, duration, rate } from "./words.js";

const EVERY = STEP;
const KINDS: Kind[] = [
  {
    id: "chart-users",
    lines: [
      { key: "online", label: "online", colour: "--online" },
      { key: "away", label: "away", colour: "--away", dash: [2, 3] },
      { key: "busy", label: "busy", colour: "--busy", dash: [7, 3] },
    ],
    say: (value) => (value === null ? "–" : count(value)),
    least: 4,
  },
  {
    id: "chart-connections",
    lines: [
      { key: "connections", label: "connections", colour: "--one" },
      { key: "stale_views", label: "stale views", colour: "--busy", dash: [7, 3] },
    ],
    say: (value) => (value === null ? "–" : count(value)),
    least: 4,
  },
  {
    id: "chart-work",
    lines: [
      { key: "deliveries", label: "deliveries", colour: "--one" },
      { key: "changes", label: "changes", colour: "--two", dash: [7, 3] },
      { key: "refusals", label: "refusals", colour: "--busy", dash: [2, 3] },
    ],
    say: (value) => (value === null ? "–" : rate(value)),
    least: 2,
  },
  {
    id: "chart-delivery",
    lines: [
      { key: "p50", label: "p50", colour: "--one" },
      { key: "p99", label: "p99", colour: "--two", dash: [7, 3] },
    ],
    say: duration,
    least: 5,
    scale: 1_000,
  },
];

const door = new Door();
let charts: Chart[] = [];
let points: Point[] = [];
let heard: { now: number; at: number } | null = null;
let span = 5 * 60_000;
let asking = false;

/** The server's time in epoch ms; the local time before the first response. */
function now(): number {
  return heard === null ? Date.now() : heard.now + (performance.now() - heard.at);
}

async function look(): Promise<void> {
  if (asking || document.hidden || !at("door").hidden) return;
  asking = true;
  try {
    take(await ask(last(points), door.token));
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    if (error.why === "token") lock(error.code);
    else lose(error.message);
  } finally {
    asking = false;
    draw();
  }
}

function take(stats: Stats): void {
  heard = { now: stats.now, at: performance.now() };
  points = merged(points, stats.history);
  at("board").hidden = false;
  if (charts.length === 0) charts = KINDS.map((kind) => new Chart(kind));
  document.body.classList.remove("away");
  at("banner").hidden = true;
  say(at("live"), `Live · ${clock(stats.now)}`);
  at("leave").hidden = door.token === null;
  show(stats);
}

function lose(sentence: string): void {
  document.body.classList.add("away");
  const since = heard === null ? "" : ` The page shows the state of ${clock(heard.now)}, not the current one.`;
  say(at("banner"), `${sentence}${since} The page tries again every two seconds.`);
  at("banner").hidden = false;
  say(at("live"), heard === null ? "Not connected" : `Not live · last response ${duration((performance.now() - heard.at) / 1000)} ago`);
}

function draw(): void {
  for (const chart of charts) chart.draw(points, now(), span);
}

// --- The operator's token

function lock(code: string): void {
  const why = door.token === null ? "" : refusal(code);
  door.close();
  forget();
  at("door").hidden = false;
  say(at("door-error"), why);
  at("token").focus();
}

/** Remove all shown data, so that the next person at this page does not see it. */
function forget(): void {
  points = [];
  heard = null;
  at("board").hidden = true;
  at("banner").hidden = true;
  at("leave").hidden = true;
  document.body.classList.remove("away");
  say(at("live"), "");
}

at("door-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = at<HTMLInputElement>("token");
  const token = input.value.trim().replace(/^Bearer\s+/i, "");
  if (!/^[\w.+/=-]+$/.test(token)) return say(at("door-error"), "This is not a token. A token has three groups of letters and digits with dots between them.");
  input.value = "";
  door.open(token);
  at("door").hidden = true;
  void look();
});

at("leave").addEventListener("click", () => lock(""));

for (const button of document.querySelectorAll<HTMLButtonElement>("#span button")) {
  button.addEventListener("click", () => {
    span = Number(button.dataset.minutes) * 60_000;
    for (const each of document.querySelectorAll("#span button")) each.setAttribute("aria-pressed", String(each === button));
    draw();
  });
}

document.addEventListener("visibilitychange", () => void look());
setInterval(() => void look(), EVERY);
void look();
