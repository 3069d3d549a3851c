"""Heartbeats per CPU second, compared with a listener that drops every frame unread.

Every client sends one heartbeat per burst, and a burst begins only after the server has read the whole previous one, so
that one read from a socket returns one frame (`frames per read` shows it). At full speed frames would pile up, and a
slow server would read many at once and look better than it is. Both servers run and are measured alternately, half a
second each, so that other load of the machine affects both. The node counts every heartbeat (`beat_min` 0).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bench.effort import Effort
from bench.load import PATIENCE, Crowd, handshake, masked, names, share
from bench.report import Figure, Result
from bench.server import Server, bare, herenow

CLIENTS = 500
BURSTS = 40
"""Bursts per second: 20 000 frames per second, a fifth to a third of what either side can handle."""

WARM_UP = 1.0
MEASURE = 8.0
TURN = 0.5
BEAT = masked(b'{"type":"presence.heartbeat"}')
ACTIVE = masked(b'{"type":"presence.heartbeat","activity_type":"active"}')


@dataclass
class Side:
    """One server with its clients and its measurements."""

    server: Server
    crowd: Crowd
    clients: list[int]
    frame: bytes = BEAT
    sent: int = 0
    reads: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    load: float = 0.0

    @property
    def per_cpu_second(self) -> float:
        return self.sent / self.cpu

    def take_turn(self, seconds: float) -> None:
        cpu, reads = self.server.cpu_seconds, self.server.reads.calls
        with share() as load:
            self.sent += _beat(self.server, self.crowd, self.clients, self.frame, seconds)
        self.cpu += self.server.cpu_seconds - cpu
        self.reads += self.server.reads.calls - reads
        self.wall += load.seconds
        self.load += load.used * load.seconds


def run(effort: Effort) -> Result:
    bare_ones, beats, active = [], [], []
    for _ in range(effort.repeats):
        with ExitStack() as running:
            bare_one = _bare(running)
            beat = _herenow(running)
            acting = replace(beat, frame=ACTIVE)
            # Never the same server twice in a row: the scheduler favours a process that was idle.
            _take_turns([bare_one, beat, bare_one, acting], effort.seconds(MEASURE))
        bare_ones.append(bare_one)
        beats.append(beat)
        active.append(acting)
    unit, yardstick = "per server CPU s", [side.per_cpu_second for side in bare_ones]
    return Result(
        "beats",
        [
            Figure("heartbeats", unit, [side.per_cpu_second for side in beats], yardstick, at_least=0.8),
            Figure("the same, with activity", unit, [side.per_cpu_second for side in active], yardstick),
        ],
        [
            f"{CLIENTS} clients, {CLIENTS * BURSTS} frames per second for both sides",
            _noted("frames per read", lambda side: side.sent / side.reads, beats, bare_ones),
            _noted("share of the server's core", lambda side: side.cpu / side.wall, beats, bare_ones),
            _noted("share of the load's core", lambda side: side.load / side.wall, beats, bare_ones),
        ],
    )


def _bare(running: ExitStack) -> Side:
    server = running.enter_context(bare("discard"))
    crowd = running.enter_context(Crowd(server))
    return Side(server, crowd, crowd.join(handshake() for _ in range(CLIENTS)))


def _herenow(running: ExitStack) -> Side:
    server = running.enter_context(herenow(beat_min=0))
    crowd = running.enter_context(Crowd(server))
    return Side(server, crowd, crowd.join(map(handshake, names(CLIENTS)), frames_each=2))


def _take_turns(sides: list[Side], seconds: float) -> None:
    for side in sides:
        _beat(side.server, side.crowd, side.clients, side.frame, WARM_UP)
    for _ in range(round(seconds / TURN)):
        for side in sides:
            side.take_turn(TURN)


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


def _noted(what: str, value: Callable[[Side], float], ours: list[Side], theirs: list[Side]) -> str:
    def median(sides: list[Side]) -> float:
        return statistics.median(map(value, sides))

    return f"{what}: herenow {median(ours):.2f}, bare {median(theirs):.2f}"
