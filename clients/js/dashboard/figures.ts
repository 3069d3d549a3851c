/** Shows one stats response: problems first, then numbers and tables. */
import { at, fill, make, say } from "./elements.js";
import type { Member, Process, Stats } from "./stats.js";
import { count, duration, many, rate } from "./words.js";

export function show(stats: Stats): void {
  troubles(stats);
  tiles(stats);
  fill(at("members"), stats.members.map(member), "No node is known.");
  fill(at("processes"), stats.processes.map((each) => process(each, stats.processes.length)), "No process answers.");
  fill(at("targets"), stats.targets.map((each) => [mono(each.target), count(each.viewers), count(each.deliveries)]), "No changes were delivered in the last minute.");
  fill(at("refusals"), most(stats.refusals), "Nothing has been refused.");
  fill(at("closes"), most(stats.closes), "No WebSocket has been closed.");
  health(stats);
  say(at("about"), `herenow ${stats.version} · ${stats.workers === 1 ? "1 process" : `${count(stats.workers)} processes`}`);
}

/** The list of problems. It is replaced only if it changed, so that screen readers do not repeat it. */
function troubles(stats: Stats): void {
  const told = stats.degraded.map((each) => ({ detail: each.detail, fix: each.fix }));
  if (stats.draining) told.unshift({ detail: "The node is draining: its clients are asked to reconnect to other nodes.", fix: "" });
  else if (!stats.ready) told.unshift({ detail: "The node is not ready yet.", fix: "It has not reached the live store and the database; see its log." });
  const said = JSON.stringify(told);
  const place = at("troubles");
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  place.classList.toggle("well", told.length === 0);
  place.replaceChildren(
    ...(told.length
      ? told.map((each) => make("li", {}, make("strong", {}, each.detail), ...(each.fix ? [make("span", {}, each.fix)] : [])))
      : [make("li", {}, make("strong", {}, "All is well."))]),
  );
}

function tiles(stats: Stats): void {
  say(at("connections"), count(stats.connections));
  say(at("connections-more"), `${many(stats.sessions, "session")}, ${many(stats.streams, "stream")}`);
  for (const status of ["online", "busy", "away"] as const) say(at(status), count(stats.users[status]));
  say(at("changes"), rate(stats.per_second.changes));
  say(at("deliveries"), rate(stats.per_second.deliveries));
  say(at("frames"), `${rate(stats.per_second.frames)} frames, ${rate(stats.per_second.beats)} heartbeats`);
  say(at("p50"), duration(stats.delivery.p50));
  say(at("p99"), duration(stats.delivery.p99));
  say(at("stale"), count(stats.stale_views));
  at("stale").closest(".tile")!.classList.toggle("bad", stats.stale_views > 0);
}

function member(each: Member): (string | Node)[] {
  const words = { well: "ok", overdue: "overdue", dead: "dead", unknown: "not known" };
  return [mono(each.epoch), each.here ? "this one" : "another", state(each.state === "well", words[each.state]), each.still_for === null ? "–" : `${duration(each.still_for)} ago`];
}

function process(each: Process, all: number): (string | Node)[] {
  return [
    all === 1 ? mono(each.epoch) : `Worker ${each.worker}`,
    count(each.connections),
    state(each.lease_held, each.lease_held ? "held" : "lost"),
    each.log_heard_ago > 3 ? state(false, `no updates for ${duration(each.log_heard_ago)}`) : each.log_behind ? `${count(each.log_behind)} behind` : "up to date",
    each.undecided ? state(false, count(each.undecided)) : "0",
    each.gives_up ? state(false, duration(each.loop_late)) : duration(each.loop_late),
    count(each.restarts),
  ];
}

function health(stats: Stats): void {
  const wrong = new Set(stats.degraded.map((each) => each.what));
  const shards = Math.max(0, ...stats.processes.map((each) => each.stale_shards));
  const second = stats.per_second;
  part("engine", !wrong.has("engine") && shards === 0, wrong.has("engine") ? "cannot be used" : shards ? `${many(shards, "shard")} stale` : "answers");
  say(at("engine-more"), `${rate(second.engine_errors)} errors, ${rate(second.conflicts)} conflicts per second`);
  const late = ["ledger", "ledger_backlog", "relations", "revocations"].some((what) => wrong.has(what));
  part("ledger", !late, wrong.has("ledger_backlog") ? "does not take writes" : late ? "cannot be read" : "answers");
  say(at("ledger-more"), `${many(stats.ledger_backlog, "row")} waiting, ${rate(second.ledger_errors)} errors per second`);
  const lost = stats.processes.filter((each) => !each.lease_held).length;
  part("lease", lost === 0, lost ? "cannot reach the live store" : "held");
  const renewed = Math.max(0, ...stats.processes.map((each) => each.lease_renewed_ago ?? 0));
  say(at("lease-more"), `renewed ${duration(renewed)} ago`);
}

function part(id: string, good: boolean, words: string): void {
  const place = at(id);
  say(place, words);
  place.className = good ? "state good" : "state bad";
}

function most(counts: Record<string, number>): (string | Node)[][] {
  const sorted = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 12);
  const largest = sorted[0]?.[1] ?? 1;
  return sorted.map(([code, times]) => {
    const bar = make("meter", { max: largest, value: times });
    bar.setAttribute("aria-hidden", "true");
    return [mono(code), bar, count(times)];
  });
}

function state(good: boolean, words: string): Node {
  return make("span", { className: good ? "state good" : "state bad" }, words);
}

function mono(text: string): Node {
  return make("code", {}, text);
}
