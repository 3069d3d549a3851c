"""The resources for 50 million users, computed from measured figures.

`python -m bench.capacity` writes the numbers into docs/capacity.md, between its marks, from bench/results. All
assumptions are in `Life`; everything else was measured, on a core of this machine.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.report import RESULTS, number
from bench.server import ROOT

PAGE = ROOT / "docs" / "capacity.md"
BEGIN, END = "<!-- computed by python -m bench.capacity -->", "<!-- end of what is computed -->"


@dataclass(frozen=True)
class Life:
    """Behaviour of users."""

    users: int = 50_000_000
    beat_every: float = 30.0
    changing: float = 0.1
    """Share of the users that change, per minute."""
    contacts: int = 100
    busy: float = 0.6
    """Share of a core to use; the remaining share is for connects, failures and peaks."""
    per_process: int = 15_000
    """Connections of one process: below the limit of descriptors; more is possible with more memory."""
    shards: int = 16
    """Parts of the store, each with its own batches: the default of the setting."""
    under_way: float = 0.002
    """Seconds from a commit to its answer. Changes that arrive meanwhile at the same process for the same shard are
    committed together."""

    @property
    def changes(self) -> float:
        """Per second."""
        return self.users * self.changing / 60


@dataclass(frozen=True)
class Measured:
    beat: float
    """Heartbeats per CPU second of a node."""
    delivery: float
    """Values that reach a socket, per CPU second, if a change goes to many viewers and nothing is coalesced."""
    arrival: float
    """Connects per CPU second."""
    connected: float
    """KB of a node per connected user without subscriptions."""
    watched: float
    """KB of a node per subscription."""
    stored: float
    """Bytes of the store per online user."""
    commit: float
    """µs of the store's CPU per commit, in batches of `BATCH`."""
    tailed: float
    """µs of a node's CPU per change that it reads from the log."""
    traffic: float
    """Bytes per second of an idle user, in both directions."""
    frame: float
    """Bytes of a status."""


HEADERS = 4 + 52
"""Bytes of WebSocket, TCP and IP headers."""

TAIL = 0.1
"""Share of a core that a process may spend on reading the changes of its cluster."""

MASTER = 16
"""GB for one master of the store."""


COMMITS = {1: 107.0, 5: 36.0, 20: 16.0}
"""Commits in a batch → µs of the store's CPU per commit. A lone commit takes 11 commands and 83 to 131 µs; this is the
middle of the two. Single measurements, without a scenario in `bench`; `bench redis` measures batches of `BATCH`."""

BATCH = 500


def batch_size(life: Life, processes: float) -> float:
    """Changes that one process commits together to one shard: one, and those that arrive while a commit is under way."""
    return 1 + life.changes / processes / life.shards * life.under_way


def commit_cost(size: float, in_large_batch: float) -> float:
    """µs of the store's CPU per commit in batches of `size`, between the measured sizes by a straight line in
    logarithms. `in_large_batch`: the figure for batches of `BATCH`."""
    points = sorted({**COMMITS, BATCH: in_large_batch}.items())
    for (low, dear), (high, cheap) in pairwise(points):
        if size <= high:
            share = max(0.0, math.log(size / low) / math.log(high / low))
            return dear * math.pow(cheap / dear, share)
    return in_large_batch


def measured(folder: Path = RESULTS) -> Measured:
    ten, fifty = (_figure(folder, "memory", f"connected, watching {many}$") for many in (10, 50))
    watched = (fifty - ten) / 40
    return Measured(
        beat=_figure(folder, "beats", "heartbeats"),
        delivery=_figure(folder, "fan-out", "one change to"),
        arrival=_figure(folder, "arrive", "arrivals"),
        connected=fifty - 50 * watched,
        watched=watched,
        stored=_figure(folder, "redis", "people online, each"),
        commit=_figure(folder, "redis", "a commit among .* in the store"),
        tailed=_figure(folder, "redis", "log entry read by another node"),
        traffic=_figure(folder, "traffic", "whose client beats"),
        frame=_noted(folder, "fan-out", r"a frame of (\d+) bytes"),
    )


def table(life: Life, costs: Measured) -> str:
    deliveries = life.changes * life.contacts
    beating = life.users / life.beat_every / costs.beat
    telling = deliveries / costs.delivery
    cores = (beating + telling) / life.busy
    by_sockets = life.users / life.per_process
    processes = max(cores, by_sockets)
    each = costs.connected + life.contacts * costs.watched
    resident = life.users * each / 2**20
    followed = TAIL * 1e6 / costs.tailed
    followed_users = life.users * followed / life.changes / 1e6
    stored = life.users * costs.stored / 2**30
    together = batch_size(life, processes)
    commit = commit_cost(together, costs.commit)
    committing = life.changes * commit / 1e6
    masters = max(committing / life.busy, stored / MASTER)
    told = costs.frame + HEADERS
    rows = [
        (
            "heartbeats",
            f"{number(life.users / life.beat_every)} per s",
            f"{number(costs.beat)} per CPU s",
            f"{number(beating)} cores busy",
        ),
        (
            "changes told",
            f"{number(life.changes)} per s × {life.contacts} contacts = {number(deliveries)} per s",
            f"{number(costs.delivery)} per CPU s",
            f"{number(telling)} cores busy",
        ),
        ("cores for both", f"used to {life.busy:.0%}", "", f"**{_whole(cores)} cores**"),
        (
            "processes by sockets",
            f"{number(life.per_process)} connections each",
            "",
            f"**{_whole(by_sockets)} processes**",
        ),
        (
            "memory of the nodes",
            f"{number(life.users)} users",
            f"{number(costs.connected)} KB, and {number(costs.watched)} for each of {life.contacts} contacts",
            f"**{number(resident)} GB**, {number(resident / processes)} GB to a process",
        ),
        (
            "memory of the store",
            f"{number(life.users)} users online",
            f"{number(costs.stored)} bytes each",
            f"**{number(stored)} GB**, and as much again for each replica",
        ),
        (
            "the store's CPU",
            f"{number(life.changes)} commits per s, {number(together)} in a batch",
            f"{number(commit)} µs each",
            f"{number(committing)} cores busy: **{_whole(masters)} masters**, at least as many shards",
        ),
        (
            "following all changes",
            f"{number(life.changes)} per s, in each process",
            f"{number(costs.tailed)} µs each",
            f"{number(life.changes * costs.tailed / 1e6)} of a core in each; at most {TAIL:g} with "
            f"**{_whole(life.changes / followed)} clusters** of {number(followed_users)} million users",
        ),
        (
            "network, at rest",
            f"{number(life.users)} users",
            f"{number(costs.traffic)} bytes/s each",
            f"**{number(life.users * costs.traffic * 8 / 1e9)} Gbit/s**, both ways together",
        ),
        (
            "network, changes",
            f"{number(deliveries)} per s",
            f"{number(told)} bytes each",
            f"**{number(deliveries * told * 8 / 1e9)} Gbit/s**",
        ),
        (
            "everybody arrives anew",
            f"{number(life.users)} arrivals",
            f"{number(costs.arrival)} per CPU s",
            f"{number(life.users / costs.arrival / cores / 60)} minutes with {_whole(cores)} cores",
        ),
    ]
    head = ["| what | how much | measured | needs |", "|---|---|---|---|"]
    return "\n".join(head + [f"| {' | '.join(row)} |" for row in rows])


def filled(page: str, content: str) -> str:
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{content}\n{END}", page)


def _figure(folder: Path, scenario: str, name: str) -> float:
    """Median of the last figure whose name matches: of several sizes the largest."""
    figures = json.loads((folder / f"{scenario}.json").read_text())["figures"]
    values: list[float] = [figure["ours"] for figure in figures if re.search(name, figure["name"])][-1]
    return statistics.median(values)


def _noted(folder: Path, scenario: str, pattern: str) -> float:
    notes = " ".join(json.loads((folder / f"{scenario}.json").read_text())["notes"])
    found = re.search(pattern, notes)
    assert found, f"the notes of {scenario} do not say {pattern}"
    return float(found[1])


def _whole(value: float) -> str:
    return f"{math.ceil(value):,}".replace(",", " ")


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(), table(Life(), measured())))


if __name__ == "__main__":
    main()
