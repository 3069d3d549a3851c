"""Ten thousand users are lost at the same moment: how far from its due time is each loss announced?

Once silently (the sockets stay open and answer nothing: due `dead_after` and `grace` after the last heartbeat) and once
by closed connections (due `grace` after the close). Viewers watch all of them; the announcement counts when a viewer
has read it, and the due time from the last heartbeat or close of the client, both by the load's clock. Timings are
short, so that it does not take two minutes; the error does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from bench.beats import BEAT
from bench.effort import Effort
from bench.load import Crowd, handshake, names, share, subscription
from bench.report import Figure, Result
from bench.server import herenow

PEOPLE = 10_000
PER_VIEWER = 500
BEAT_EVERY, DEAD_AFTER, GRACE = 6.0, 12.0, 4.0
WITHIN = 1.0
"""Seconds, for 999 in 1000."""
OVERDUE = 30.0


@dataclass
class Losses:
    due: dict[str, float] = field(default_factory=dict)
    announced: dict[str, float] = field(default_factory=dict)
    load: float = 0.0

    @property
    def errors(self) -> list[float]:
        """Seconds, ascending; negative if too early."""
        return sorted(self.announced[user] - due for user, due in self.due.items())

    def at(self, share: float) -> float:
        errors = self.errors
        return errors[min(len(errors) - 1, int(len(errors) * share))]


def run(effort: Effort) -> Result:
    people = effort.people(PEOPLE)
    figures, notes = [], [f"{people} people; the earliest of all was announced this long after it was due:"]
    for name, lose, delay in (("silent", _fall_silent, DEAD_AFTER + GRACE), ("closed", _close, GRACE)):
        seen = [_measure(people, lose, delay) for _ in range(effort.repeats)]
        figures += [
            Figure(f"{name}: announced minus due, p50", "s", [each.at(0.5) for each in seen]),
            Figure(f"{name}: the same, p99.9", "s", [each.at(0.999) for each in seen], at_most=WITHIN),
            Figure(f"{name}: the last of all", "s", [each.at(1.0) for each in seen]),
        ]
        earliest = min(each.errors[0] for each in seen)
        spread = max(max(each.due.values()) - min(each.due.values()) for each in seen)
        notes.append(
            f"{name}: {earliest:.3f} s; all were lost within {spread:.2f} s; the load used "
            f"{max(each.load for each in seen):.2f} of its core"
        )
    return Result("losses", figures, notes)


Lose = Callable[[Crowd, list[int]], list[float]]


def _measure(people: int, lose: Lose, delay: float) -> Losses:
    users, seen = names(people), Losses()
    with (
        herenow(relations="open", beat_every=BEAT_EVERY, dead_after=DEAD_AFTER, grace=GRACE, idle_after=3600) as server,
        Crowd(server) as targets,
        Crowd(server) as viewers,
    ):
        watching = viewers.join(map(handshake, names(-(-people // PER_VIEWER), "viewer")), frames_each=2)
        lost = _join(targets, viewers, users)
        viewers.ask(
            (viewer, subscription(users[number * PER_VIEWER : (number + 1) * PER_VIEWER]))
            for number, viewer in enumerate(watching)
        )
        for viewer in watching:
            viewers.listeners[viewer] = lambda payload: _note(payload, seen.announced)
        _together(targets, viewers, 1.0)
        went = lose(targets, lost)
        seen.due = {user: at + delay for user, at in zip(users, went, strict=True)}
        with share() as load:
            viewers.until(lambda: len(seen.announced) >= people, patience=delay + OVERDUE)
        seen.load = load.used
    return seen


def _join(targets: Crowd, viewers: Crowd, users: list[str]) -> list[int]:
    """A hundred at a time: connected clients have pings to answer, even on a slow machine."""
    joined = []
    for start in range(0, len(users), 100):
        joined += targets.join(map(handshake, users[start : start + 100]), frames_each=2)
        viewers.read()
    return joined


def _together(first: Crowd, second: Crowd, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        first.read(0.02)
        second.read(0.02)


def _fall_silent(crowd: Crowd, clients: list[int]) -> list[float]:
    """Sends the last heartbeat of each; these sockets are not read afterwards."""
    went = []
    for client in clients:
        went.append(time.time())
        crowd.send(client, BEAT)
    return went


def _close(crowd: Crowd, clients: list[int]) -> list[float]:
    went = []
    for client in clients:
        went.append(time.time())
        crowd.leave([client])
    return went


class _Status(msgspec.Struct):
    user_id: str = ""
    status: str = ""
    statuses: list[_Status] = []


def _note(payload: bytes, announced: dict[str, float]) -> None:
    now = time.time()
    frame = msgspec.json.decode(payload, type=_Status)
    for each in (frame, *frame.statuses):
        if each.status == "offline":
            announced.setdefault(each.user_id, now)
