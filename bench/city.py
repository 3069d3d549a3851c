"""A realistic load: ten thousand users with realistic contact lists, and a growing number of changes.

Contacts are mutual, fifty on average with a heavy tail: a few users have hundreds. Every user is connected and watches
all contacts. At first a tenth of the users change per minute: half of the changes are modes, the others are users who
become idle and return. The rate is doubled until the 99th percentile of the time from a change to the sockets exceeds
100 ms by the node's own histogram (the upper bound of its bucket); the last stage before that is what a node can
handle.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import msgspec

from bench.effort import Effort
from bench.fan_out import MODES
from bench.load import Crowd, Listener, handshake, masked, names, share
from bench.report import Figure, Line, Result
from bench.server import Server, herenow
from bench.storm import delivery_buckets, p99_of

PEOPLE = 10_000
CONTACTS = 50
"""On average."""
MOST_CONTACTS = 450
TAIL = 1.6
"""Exponent of the Pareto distribution of contact counts."""

CHANGING = 0.1
"""Share of the users per minute, at first."""
STAGES = 9
WARM_UP = 2.0
MEASURE = 6.0
STEP = 0.02
LATE = 0.1
"""Seconds."""
SAMPLED = 100
"""Viewers whose frames are parsed, not only counted."""

CONTACTS_PLEASE = masked(b'{"type":"presence.subscribe","contacts":true}')
ACTIVITY = (masked(b'{"type":"presence.away"}'), masked(b'{"type":"presence.active"}'))


@dataclass(frozen=True)
class Stage:
    changes: float
    """Per second."""
    deliveries: float
    """Values that reached a socket, per second."""
    node_p99: float
    """Seconds; the upper bound of the bucket."""
    viewer_p50: float
    viewer_p99: float
    """Milliseconds."""
    server: float
    load: float
    """Shares of their cores."""

    @property
    def borne(self) -> bool:
        return self.node_p99 <= LATE


def run(effort: Effort) -> Result:
    people = effort.people(PEOPLE)
    runs = [_measure(people, effort) for _ in range(effort.repeats)]
    best = [_last_borne(stages) for stages in runs]
    start = people * CHANGING / 60
    return Result(
        "city",
        [
            Figure("changes borne", "per s", [each.changes for each in best]),
            Figure("the same, by what a city of that size does", "times", [each.changes / start for each in best]),
            Figure("values delivered then", "per s", [each.deliveries for each in best]),
            Figure("change to viewer then, p50", "ms", [each.viewer_p50 for each in best]),
            Figure("change to viewer then, p99", "ms", [each.viewer_p99 for each in best]),
        ],
        [
            f"{people} people, {CONTACTS} contacts on average; {start:.0f} changes per second to begin with",
            *(_told(stage) for stage in runs[-1]),
        ],
        lines=[
            Line("p50", "changes per s", "ms to a viewer", [(s.changes, s.viewer_p50) for s in runs[-1]]),
            Line("p99", "changes per s", "ms to a viewer", [(s.changes, s.viewer_p99) for s in runs[-1]]),
            Line("of its core", "changes per s", "share", [(s.changes, s.server) for s in runs[-1]]),
        ],
    )


def acquainted(people: int, mean: int, dice: Random) -> list[tuple[int, int]]:
    """Pairs of contacts: no user with themselves, no pair twice, no user with more than `MOST_CONTACTS`."""
    sociable = list(itertools.accumulate(dice.paretovariate(TAIL) for _ in range(people)))
    degrees = [0] * people
    pairs: set[tuple[int, int]] = set()
    wanted, numbers = people * mean // 2, range(people)
    for _ in range(20):  # several rounds, because some pairs are drawn twice
        missing = wanted - len(pairs)
        drawn = iter(dice.choices(numbers, cum_weights=sociable, k=2 * missing))
        for one, other in zip(drawn, drawn, strict=True):
            pair = (min(one, other), max(one, other))
            if one != other and pair not in pairs and max(degrees[one], degrees[other]) < MOST_CONTACTS:
                pairs.add(pair)
                degrees[one] += 1
                degrees[other] += 1
    return sorted(pairs)


def _measure(people: int, effort: Effort) -> list[Stage]:
    users, dice = names(people), Random(7)
    known = acquainted(people, min(CONTACTS, people // 4), dice)
    with herenow((users[one], users[other]) for one, other in known) as server, Crowd(server) as crowd:
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask((client, CONTACTS_PLEASE) for client in clients)
        eyes = Eyes(crowd, clients[:: max(1, people // SAMPLED)])
        changes = _changes(clients, dice)
        stages: list[Stage] = []
        rate = people * CHANGING / 60
        for _ in range(STAGES):
            _churn(crowd, changes, rate, effort.seconds(WARM_UP))
            stages.append(_stage(server, crowd, eyes, changes, rate, effort.seconds(MEASURE)))
            if not stages[-1].borne:
                break
            rate *= 2
        return stages


def _stage(
    server: Server, crowd: Crowd, eyes: Eyes, changes: Iterator[tuple[int, bytes]], rate: float, seconds: float
) -> Stage:
    eyes.late.clear()
    before, cpu = delivery_buckets(server), server.cpu_seconds
    with share() as load:
        made = _churn(crowd, changes, rate, seconds)
    cpu = server.cpu_seconds - cpu
    after = delivery_buckets(server)
    late = sorted(eyes.late) or [math.nan]
    return Stage(
        changes=made / load.seconds,
        deliveries=(max(after.values()) - max(before.values(), default=0.0)) / load.seconds,
        node_p99=p99_of(before, after),
        viewer_p50=late[len(late) // 2],
        viewer_p99=late[len(late) * 99 // 100],
        server=cpu / load.seconds,
        load=load.used,
    )


def _changes(clients: list[int], dice: Random) -> Iterator[tuple[int, bytes]]:
    """An endless sequence of changes: each user alternates between two modes and between two activities."""
    turn = {client: [0, 0] for client in clients}
    while True:
        client = dice.choice(clients)
        kind = dice.randrange(2)
        turn[client][kind] ^= 1
        yield client, (ACTIVITY if kind else MODES)[1 - turn[client][kind]]


def _churn(crowd: Crowd, changes: Iterator[tuple[int, bytes]], rate: float, seconds: float) -> int:
    start, made = time.monotonic(), 0
    for step in range(1, round(seconds / STEP) + 1):
        while made < rate * step * STEP:
            crowd.send(*next(changes))
            made += 1
        crowd.settle(start + step * STEP - time.monotonic())
    return made


class Eyes:
    """Some viewers: how late each received a busy status, measured from its timestamp."""

    def __init__(self, crowd: Crowd, clients: list[int]) -> None:
        self.late: list[float] = []
        for client in clients:
            crowd.listeners[client] = self._of(set())

    def _of(self, known: set[tuple[str, int]]) -> Listener:
        def look(payload: bytes) -> None:
            now = time.time() * 1000
            frame = msgspec.json.decode(payload, type=_Status)
            for each in (frame, *frame.statuses):
                if each.status == "busy" and each.since and (each.user_id, each.since) not in known:
                    known.add((each.user_id, each.since))
                    self.late.append(now - each.since)

        return look


class _Status(msgspec.Struct):
    user_id: str = ""
    status: str = ""
    since: int | None = None
    statuses: list[_Status] = []


def _last_borne(stages: list[Stage]) -> Stage:
    return next((stage for stage in reversed(stages) if stage.borne), stages[0])


def _told(stage: Stage) -> str:
    return (
        f"{stage.changes:.0f} changes per second: {stage.deliveries:.0f} values delivered per second, p99 at the sockets "
        f"within {stage.node_p99 * 1000:g} ms, at viewers {stage.viewer_p99:.0f} ms; share of the server's core "
        f"{stage.server:.2f}, of the load's {stage.load:.2f}"
    )
