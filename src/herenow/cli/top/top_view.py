"""The lines that `herenow top` shows: problems first, then the numbers.

Pure: stats in, lines out. Text and style of a line are separate, so that it can be cut to a width and printed with or
without colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herenow.cli.node_client import NodeAnswer

if TYPE_CHECKING:
    from herenow.api.ops.stats import Process, Stats, StoreMember

SLOW = 1.0
"""Seconds from a change to its delivery (99th percentile) that count as a problem."""

NARROWEST = 20
"""Characters: smallest width that sentences are wrapped for."""

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}

TABLE = ("node", "clients", "changes", "deliveries", "p50", "p99", "lease", "updates", "database", "stale", "late")
NARROW = ("node", "clients", "changes", "p99", "lease", "stale")

STATES = {"well": "ok", "unknown": "not known"}
"""Labels for the state of a member; other states are shown as they are."""


@dataclass(frozen=True, slots=True)
class NodeProblem:
    where: tuple[str, ...]
    """The nodes that have this problem."""
    sentence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    style: str = ""
    """One of `CODES`; empty: plain."""


def problems(asked: Sequence[NodeAnswer]) -> list[NodeProblem]:
    """List all problems in the order of the nodes. A problem of several nodes is listed once, with all of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in asked:
        for sentence, fix in _problems_of(node):
            found.setdefault((sentence, fix), []).append(node.url)
    return [NodeProblem(tuple(where), *what) for what, where in found.items()]


def _problems_of(node: NodeAnswer) -> Iterator[tuple[str, str]]:
    stats = node.stats
    if stats is None:
        yield node.sentence, ""
        return
    for trouble in stats.degraded:
        yield trouble.detail, trouble.fix
    if stats.draining:
        yield "The node is draining: its clients are asked to reconnect to other nodes.", ""
    elif not stats.ready:
        yield "The node is not ready.", "It has not reached the live store and the database yet; see its log."
    if stats.delivery.p99 is not None and stats.delivery.p99 > SLOW:
        yield (
            f"Changes take {_duration(stats.delivery.p99)} to reach sockets (99th percentile).",
            "Is the machine busy with something else? More workers or nodes share the work.",
        )


def lines(asked: Sequence[NodeAnswer], width: int) -> Iterator[Line]:
    yield from _words(problems(asked), len(asked))
    answers = [(node, node.stats) for node in asked if node.stats is not None]
    if not answers:
        return
    yield Line("")
    yield from _sums([stats for _, stats in answers])
    yield Line("")
    yield from _nodes(answers, width)
    yield from _members([stats for _, stats in answers])
    yield from _rest([stats for _, stats in answers])


def _words(found: Sequence[NodeProblem], nodes: int) -> Iterator[Line]:
    if not found:
        yield Line("● All is well." if nodes == 1 else f"● All is well on {nodes} nodes.", "green")
    for problem in found:
        named = nodes == 1 or problem.sentence.startswith(problem.where)
        where = "" if named else f" ({', '.join(map(_short, problem.where))})"
        yield Line(f"✗ {problem.sentence}{where}", "red")
        if problem.fix:
            yield Line(f"  → {problem.fix}")


def _sums(each: Sequence[Stats]) -> Iterator[Line]:
    """Yield the lines with the totals of all nodes. Each node counts the users of the whole store, so the largest count
    is shown; all other figures are added up."""
    online, busy, away = (max(getattr(stats.users, status) for stats in each) for status in ("online", "busy", "away"))
    yield Line(f"users       {_number(online)} online · {_number(busy)} busy · {_number(away)} away", "bold")
    connections, streams, sessions = (
        sum(getattr(stats, name) for stats in each) for name in ("connections", "streams", "sessions")
    )
    yield Line(
        f"clients     {_number(connections)} connections · {_number(streams)} streams · {_number(sessions)} sessions"
    )
    rates = [stats.per_second for stats in each]
    changes, deliveries, beats = (
        sum(getattr(rate, name) for rate in rates) for name in ("changes", "deliveries", "beats")
    )
    yield Line(
        f"per second  {_rate(changes)} changes · {_rate(deliveries)} deliveries · {_rate(beats)} heartbeats · "
        f"{_rate(sum(rate.conflicts for rate in rates))} conflicts"
    )
    errors = sum(rate.engine_errors for rate in rates), sum(rate.ledger_errors for rate in rates)
    yield Line(f"errors      {_rate(errors[0])} of the live store · {_rate(errors[1])} of the database, per second")


def _nodes(answers: Sequence[tuple[NodeAnswer, Stats]], width: int) -> Iterator[Line]:
    """Yield a table with one line per node, and one per worker if the node has several."""
    columns = TABLE if width >= 110 else NARROW
    rows: list[tuple[dict[str, str], str]] = [({name: name for name in TABLE}, "dim")]
    for node, stats in answers:
        rows.append((_node_row(node, stats), "red" if stats.degraded else ""))
        if len(stats.processes) > 1:
            rows += [(_process_row(process), "dim") for process in stats.processes]
    widths = {name: max(len(row[name]) for row, _ in rows) for name in columns}
    for row, style in rows:
        first, *others = columns
        cells = [row[first].ljust(widths[first]), *(row[name].rjust(widths[name]) for name in others)]
        yield Line("  ".join(cells).rstrip(), style)


def _node_row(node: NodeAnswer, stats: Stats) -> dict[str, str]:
    processes = stats.processes
    held = all(process.lease_held for process in processes)
    renewed = [process.lease_renewed_ago for process in processes]
    return {
        "node": _short(node.url),
        "clients": _number(stats.connections),
        "changes": _rate(stats.per_second.changes),
        "deliveries": _rate(stats.per_second.deliveries),
        "p50": _duration(stats.delivery.p50),
        "p99": _duration(stats.delivery.p99),
        "lease": _lease(renewed, held=held),
        "updates": _updates(processes),
        "database": f"{_number(stats.ledger_backlog)} wait" if stats.ledger_backlog else "ok",
        "stale": _number(stats.stale_views),
        "late": _duration(max((process.loop_late for process in processes), default=None)),
    }


def _process_row(process: Process) -> dict[str, str]:
    return {
        "node": f"  worker {process.worker}",
        "clients": _number(process.connections),
        "changes": "",
        "deliveries": "",
        "p50": "",
        "p99": "",
        "lease": _lease([process.lease_renewed_ago], held=process.lease_held),
        "updates": _updates([process]),
        "database": "",
        "stale": f"{process.stale_shards} shards" if process.stale_shards else "0",
        "late": _duration(process.loop_late),
    }


def _lease(renewed: Sequence[float | None], *, held: bool) -> str:
    known = [ago for ago in renewed if ago is not None]
    if not held or len(known) < len(renewed):
        return "LOST"
    return f"{max(known, default=0.0):.0f} s ago"


def _updates(processes: Sequence[Process]) -> str:
    """Describe how far a node has read the shard logs: the number of unread entries, or the seconds since the logs last
    answered if that is over 3."""
    behind = sum(process.log_behind for process in processes)
    silent = max((process.log_heard_ago for process in processes), default=0.0)
    if silent > 3:
        return f"none for {silent:.0f} s"
    return f"{_number(behind)} behind" if behind else "ok"


def _members(each: Sequence[Stats]) -> Iterator[Line]:
    members: dict[str, StoreMember] = {}
    asked = {process.epoch for stats in each for process in stats.processes}
    for stats in each:
        for member in stats.members:
            if member.epoch not in members or member.here:
                members[member.epoch] = member
    if len(members) <= len(asked) and all(member.state == "well" for member in members.values()):
        return
    yield Line("")
    yield Line(f"{len(members)} processes have leases in the live store", "dim")
    for member in members.values():
        still = "" if member.still_for is None else f", lease renewed {member.still_for:.0f} s ago"
        here = "" if member.epoch in asked else " (not in the table above)"
        state = STATES.get(member.state, member.state)
        yield Line(f"  {member.epoch}  {state}{still}{here}", "" if member.state == "well" else "red")


def _rest(each: Sequence[Stats]) -> Iterator[Line]:
    refusals = _most((stats.refusals for stats in each), 8)
    closes = _most((stats.closes for stats in each), 8)
    if refusals or closes:
        yield Line("")
    if refusals:
        yield Line("refusals    " + " · ".join(f"{code} {_number(times)}" for code, times in refusals))
    if closes:
        yield Line("closes      " + " · ".join(f"{code} {_number(times)}" for code, times in closes))
    targets = _most(({t.target: t.deliveries for t in stats.targets} for stats in each), 5)
    if targets:
        yield Line("")
        yield Line("users with the most deliveries recently (hashed ids)", "dim")
        viewers = dict(_most(({t.target: t.viewers for t in stats.targets} for stats in each), None))
        for name, times in targets:
            yield Line(f"  {name}  {_number(times)} deliveries to {_number(viewers[name])} viewers")


def _most(each: Iterable[dict[str, int]], most: int | None) -> list[tuple[str, int]]:
    together: dict[str, int] = {}
    for counts in each:
        for name, times in counts.items():
            together[name] = together.get(name, 0) + times
    return sorted(together.items(), key=lambda item: (-item[1], item[0]))[:most]


# --- Formatting numbers


def _short(url: str) -> str:
    return url.removeprefix("http://").removeprefix("https://")


def _number(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")


def _rate(per_second: float) -> str:
    if per_second == 0 or per_second >= 100:
        return _number(round(per_second))
    return f"{per_second:.1f}" if per_second >= 0.1 else "<0.1"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


# --- Fitting the terminal


def printed(shown: Iterable[Line], *, colours: bool) -> list[str]:
    return [_styled(line.text, line.style, colours=colours) for line in shown]


def fitted(shown: Sequence[Line], width: int, height: int) -> list[Line]:
    """Fit the lines to the screen: wrap problems, cut other lines, and replace surplus lines by one with their
    number."""
    wrapped = [part for line in shown for part in _wrapped(line, width)]
    if len(wrapped) <= height:
        return wrapped
    return [*wrapped[: height - 1], Line(f"… {len(wrapped) - height + 1} more lines", "dim")]


def _wrapped(line: Line, width: int) -> Iterator[Line]:
    """Fit one line to `width`: wrap a problem or its remedy, which must be readable in full; cut any other line."""
    text, width = line.text, max(width, NARROWEST)
    if not text.startswith(("✗", "  →")):
        yield Line(text[:width], line.style)
        return
    indent = "  " if text.startswith("✗") else "    "
    while len(text) > width:
        at = text.rfind(" ", len(indent) + 1, width + 1)
        at = at if at > 0 else width
        yield Line(text[:at], line.style)
        text = indent + text[at:].lstrip()
    yield Line(text, line.style)


def _styled(text: str, style: str, *, colours: bool) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if colours and style else text
