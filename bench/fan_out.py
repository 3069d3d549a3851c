"""One user changes with ten thousand viewers: deliveries per CPU second, compared with a loop that only sends.

The bare listener gets one frame and sends its payload, which equals our status frame, to all clients. The node does its
full work: it reads `presence.set` from the user's socket, decides, commits, writes its log, computes the view, encodes
it, sends it to all viewers, and waits for the tick. By default it would pace the delivery to so many viewers, so
`pace_above` is raised; `popular` measures paced delivery. The load does not read while the server sends, so that the
server does not pay for waking it; a round ends when every viewer has its frame.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.effort import Effort
from bench.load import Crowd, handshake, masked, names, share, subscription
from bench.report import Figure, Result
from bench.server import Server, bare, herenow

VIEWERS = 10_000
ROUNDS = 20
WARM_UP = 3
"""Rounds."""

REST = 0.25
"""Seconds in which the load does not read: the server sends, and the node's tick ends."""

STAR = "star"
MODES = tuple(masked(f'{{"type":"presence.set","mode":"{mode}"}}'.encode()) for mode in ("busy", "auto"))

Change = Callable[[], None]


@dataclass(frozen=True)
class Measured:
    per_cpu_second: float
    server_share: float
    load_share: float


def run(effort: Effort) -> Result:
    viewers, rounds = effort.people(VIEWERS), effort.rounds(ROUNDS)
    ours, theirs, sizes = [], [], set()
    for _ in range(effort.repeats):
        with watched_star(viewers) as (server, crowd, change, frame):
            ours.append(_measure(server, crowd, change, viewers, viewers + 1, rounds))
        with bare_crowd(viewers, frame) as (server, crowd, change):
            theirs.append(_measure(server, crowd, change, viewers, viewers, rounds))
        sizes.add(len(frame))
    return Result(
        "fan-out",
        [
            Figure(
                f"one change to {viewers} viewers",
                "deliveries per server CPU s",
                [each.per_cpu_second for each in ours],
                [each.per_cpu_second for each in theirs],
                at_least=0.85,
            )
        ],
        [
            f"{rounds} rounds, a frame of {max(sizes)} bytes for both sides; the node's includes its tick and its own tasks",
            f"share of the server's core: herenow {ours[-1].server_share:.2f}, bare {theirs[-1].server_share:.2f}",
            f"share of the load's core: herenow {ours[-1].load_share:.2f}, bare {theirs[-1].load_share:.2f}",
        ],
    )


@contextmanager
def watched_star(viewers: int) -> Iterator[tuple[Server, Crowd, Change, bytes]]:
    """A node, a user with so many viewers, a function that changes the user, and the frame that viewers then get."""
    users = names(viewers)
    contacts = ((STAR, user) for user in users)
    with herenow(contacts, pace_above=2 * viewers) as server, Crowd(server) as crowd:
        [star] = crowd.join([handshake(STAR)], frames_each=2)
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask((client, subscription([STAR])) for client in clients)
        seen: list[bytes] = []
        crowd.listeners[clients[0]] = seen.append
        modes = itertools.cycle(MODES)
        for _ in MODES:
            crowd.send(star, next(modes))
            crowd.settle(1.0)
        del crowd.listeners[clients[0]]
        assert len(seen) == len(MODES), "every viewer hears of every change"
        yield server, crowd, lambda: crowd.send(star, next(modes)), seen[-1]


@contextmanager
def bare_crowd(viewers: int, frame: bytes) -> Iterator[tuple[Server, Crowd, Change]]:
    """The bare listener, so many clients, and a function that makes it send this frame to all of them."""
    with bare("fan-out") as server, Crowd(server) as crowd:
        clients = crowd.join(handshake() for _ in range(viewers))
        order = masked(frame)
        yield server, crowd, lambda: crowd.send(clients[0], order)


def _measure(server: Server, crowd: Crowd, change: Change, viewers: int, frames: int, rounds: int) -> Measured:
    """`frames`: frames per change, including those that are not for viewers."""
    for _ in range(WARM_UP):
        _round(crowd, change, frames)
    cpu = server.cpu_seconds
    with share() as load:
        for _ in range(rounds):
            _round(crowd, change, frames)
    cpu = server.cpu_seconds - cpu
    return Measured(viewers * rounds / cpu, cpu / load.seconds, load.used)


def _round(crowd: Crowd, change: Change, frames: int) -> None:
    goal = crowd.frames + frames
    change()
    time.sleep(REST)
    crowd.until_frames(goal)
