"""A user with ten thousand viewers changes repeatedly: the effect on other users.

Meanwhile a neighbour with a few viewers changes twenty times a second. The delay is the time from `since` in a frame to
its arrival at the neighbour's viewers. Measured once with paced delivery, the default above 5 000 viewers, and once
with immediate delivery (`pace_above`). For paced delivery, the time until the last viewer has a change is taken from
the node's own timestamps, `as_of` less `since`.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

import msgspec

from bench.effort import Effort
from bench.fan_out import MODES
from bench.load import Crowd, handshake, masked, names, subscription
from bench.report import Figure, Result
from bench.server import herenow

VIEWERS = 10_000
FRIENDS = 20
CHANGES = 8
"""Changes of the popular user."""

EVERY = 3.0
"""Seconds between two of them."""

STEP = 0.05
"""Seconds between two changes of the neighbour."""

AWAY = masked(b'{"type":"presence.away"}')


@dataclass
class Measured:
    neighbour: list[float] = field(default_factory=list)
    """Milliseconds from a change to a viewer of the neighbour."""
    many: list[float] = field(default_factory=list)
    """Seconds from a change to a viewer of the popular user."""

    def neighbours(self, share: float) -> float:
        return sorted(self.neighbour)[int(len(self.neighbour) * share)]


def run(effort: Effort) -> Result:
    viewers = effort.people(VIEWERS)
    paced = [_measure(viewers, effort, pace_above=viewers // 2) for _ in range(effort.repeats)]
    at_once = [_measure(viewers, effort, pace_above=2 * viewers) for _ in range(effort.repeats)]
    return Result(
        "popular",
        [
            Figure("a neighbour's change to its viewers, p50", "ms", [m.neighbours(0.5) for m in paced]),
            Figure(
                "a neighbour's change to its viewers, p99", "ms", [m.neighbours(0.99) for m in paced], at_most=100.0
            ),
            Figure("the same, p99, told at once", "ms", [m.neighbours(0.99) for m in at_once]),
            Figure(f"until the last of {viewers} knows", "s", [max(m.many) for m in paced], at_most=10.0),
            Figure("the same, told at once", "s", [max(m.many) for m in at_once]),
        ],
        [f"{CHANGES} changes, one every {EVERY:g} s; half of the viewers are idle and hear last"],
    )


def _measure(viewers: int, effort: Effort, pace_above: int) -> Measured:
    measured = Measured()
    with herenow(relations="open", pace_above=pace_above) as server, Crowd(server) as crowd:
        star, neighbour = crowd.join(map(handshake, ("star", "neighbour")), frames_each=2)
        many = crowd.join(map(handshake, names(viewers)), frames_each=2)
        crowd.ask((client, subscription(["star"])) for client in many)
        crowd.send_all(many[::2], AWAY)
        friends = crowd.join(map(handshake, names(FRIENDS, "friend")), frames_each=2)
        crowd.ask((client, subscription(["neighbour"])) for client in friends)
        crowd.settle(2 * EVERY)
        for client in friends:
            crowd.listeners[client] = lambda payload: _note(payload, measured.neighbour)
        for client in many[:: max(1, viewers // 1_000)]:
            crowd.listeners[client] = lambda payload: _stamp(payload, measured.many)
        modes = itertools.cycle(MODES)
        for mode in itertools.islice(modes, effort.rounds(CHANGES)):
            crowd.send(star, mode)
            start = time.monotonic()
            for step in range(round(EVERY / STEP)):
                crowd.send(neighbour, MODES[step % len(MODES)])
                crowd.settle(start + (step + 1) * STEP - time.monotonic())
        crowd.settle(EVERY)
    return measured


class _Status(msgspec.Struct):
    since: int | None = None
    as_of: int = 0


def _note(payload: bytes, late: list[float]) -> None:
    now = time.time() * 1000
    status = msgspec.json.decode(payload, type=_Status)
    if status.since is not None:
        late.append(now - status.since)


def _stamp(payload: bytes, late: list[float]) -> None:
    status = msgspec.json.decode(payload, type=_Status)
    if status.since is not None and status.as_of:
        late.append((status.as_of - status.since) / 1000)
