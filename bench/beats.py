"""How many heartbeats does a CPU second carry, against a listener that drops every frame unread?

Every client beats once per burst, and no burst begins before the server has read all of the last one: so a read from a
socket carries one frame (`frames per read` shows it). At full speed frames would pile up, a slow server would get many
with one read, and look better than it is. The node takes every beat for one that counts (`beat_min` 0).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.effort import Effort
from bench.load import PATIENCE, Crowd, handshake, masked, names, share
from bench.report import Figure, Result
from bench.server import Server, bare, herenow

CLIENTS = 500
BURSTS = 40
"""Per second: 20 000 frames per second, a fifth to a third of what either side can do."""

WARM_UP = 1.0
BEAT = masked(b'{"type":"presence.heartbeat"}')
ACTIVE = masked(b'{"type":"presence.heartbeat","activity_type":"active"}')


@dataclass(frozen=True)
class Measured:
    per_cpu_second: float
    per_read: float
    server_share: float
    load_share: float


def run(effort: Effort) -> Result:
    seconds = effort.seconds(5.0)
    bare_ones, beats, active = [], [], []
    for _ in range(effort.repeats):
        with bare("discard") as server, Crowd(server) as crowd:
            clients = crowd.join(handshake() for _ in range(CLIENTS))
            bare_ones.append(_measure(server, crowd, clients, BEAT, seconds))
        with herenow(beat_min=0) as server, Crowd(server) as crowd:
            clients = crowd.join(map(handshake, names(CLIENTS)), frames_each=2)
            beats.append(_measure(server, crowd, clients, BEAT, seconds))
            active.append(_measure(server, crowd, clients, ACTIVE, seconds))
    yardstick = [each.per_cpu_second for each in bare_ones]
    return Result(
        "beats",
        [
            Figure(
                "heartbeats",
                "per server CPU s",
                [each.per_cpu_second for each in beats],
                yardstick,
                at_least=0.6,
            ),
            Figure(
                "the same, with activity",
                "per server CPU s",
                [each.per_cpu_second for each in active],
                yardstick,
            ),
        ],
        [
            f"{CLIENTS} clients, {CLIENTS * BURSTS} frames per second for both sides",
            _noted("frames per read", lambda each: each.per_read, beats, bare_ones),
            _noted("share of the server's core", lambda each: each.server_share, beats, bare_ones),
            _noted("share of the load's core", lambda each: each.load_share, beats, bare_ones),
        ],
    )


def _measure(server: Server, crowd: Crowd, clients: list[int], frame: bytes, seconds: float) -> Measured:
    _beat(server, crowd, clients, frame, WARM_UP)
    cpu, reads = server.cpu_seconds, server.reads
    with share() as load:
        sent = _beat(server, crowd, clients, frame, seconds)
    cpu, calls = server.cpu_seconds - cpu, server.reads.calls - reads.calls
    return Measured(sent / cpu, sent / calls, cpu / load.seconds, load.used)


def _beat(server: Server, crowd: Crowd, clients: list[int], frame: bytes, seconds: float) -> int:
    start, bursts = time.monotonic(), round(seconds * BURSTS)
    for burst in range(bursts):
        goal = server.reads.bytes + len(clients) * len(frame)
        crowd.send_all(clients, frame)
        crowd.settle(start + (burst + 1) / BURSTS - time.monotonic())
        _wait_until_it_has_read(server, goal)
    return bursts * len(clients)


def _wait_until_it_has_read(server: Server, goal: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while server.reads.bytes < goal:
        time.sleep(0.001)
        if time.monotonic() > deadline:
            raise RuntimeError("the server does not read")


def _noted(
    what: str, value: Callable[[Measured], float], ours: list[Measured], theirs: list[Measured]
) -> str:
    def median(measured: list[Measured]) -> float:
        return statistics.median(map(value, measured))

    return f"{what}: herenow {median(ours):.2f}, bare {median(theirs):.2f}"
