"""The same work for herenow and for every peer, in the same run, and the CPU time of each server.

Heartbeats come in bursts, and a burst begins only when the server is idle after the last one, so that falling behind
brings no advantage. A change is sent to viewers who are all connected. Connects include a subscription to 50 others.
Bulk reads use one connection, one after the other. The load is that of all scenarios; the share of its core is in the
notes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace

from bench.effort import Effort
from bench.load import PATIENCE, Crowd, names, share
from bench.peers.ourselves import ourselves
from bench.peers.peer import STAR, Looking, NotInstalledError, Peer, Talk
from bench.report import Figure, Result
from bench.server import Server

UNIT = "per server CPU s"
US = "herenow"

BEATING = 500
BURSTS = 40
"""Bursts per second, at most: 20 000 heartbeats, as in `beats`. A slower server gets fewer, and the notes say how many:
at the pace of the slowest, the periodic work of a node would weigh too much.
"""
BEAT_FOR = 4.0

AT_REST = 0.012
"""Seconds without work. Seen from outside, the CPU time of a running process advances by kernel ticks of up to 10 ms:
within less time, a busy process may seem idle.
"""

VIEWERS = (1_000, 10_000)
ROUNDS = 10
SLOW_ENOUGH = 10.0
"""Seconds after which no further round begins: the figure is CPU time, and some peers need seconds for a round. Half of
it for bulk reads.
"""
REST = 0.25

ARRIVING = 1_000
WATCHED = 50
REQUESTS = 300


@dataclass(frozen=True)
class Measured:
    figure: str
    per_cpu_second: float
    load: float
    """Share of the load's core."""
    pace: float = 0.0
    """Per second, where it differs between servers."""
    store: float = 0.0
    """CPU seconds of a store per CPU second of the server."""


Serve = Callable[[Sequence[Looking]], AbstractContextManager[Talk]]


def beats(serve: Serve, effort: Effort) -> Iterator[Measured]:
    users = [(user, ()) for user in names(BEATING)]
    with serve(users) as talk, closing(talk), Crowd(talk.server) as crowd:
        clients, frame = talk.join(crowd, users), talk.beat()
        _beat(talk.server, crowd, clients, frame, effort.seconds(1.0))
        with _Meter("heartbeats", talk) as meter:
            meter.done = _beat(talk.server, crowd, clients, frame, effort.seconds(BEAT_FOR))
        yield replace(meter.measured, pace=meter.done / meter.seconds)


def _beat(server: Server, crowd: Crowd, clients: list[int], frame: bytes, seconds: float) -> int:
    start, bursts = time.monotonic(), 0
    while bursts < 2 or time.monotonic() < start + seconds:
        crowd.send_all(clients, frame)
        _until_it_rests(server, crowd)
        bursts += 1
        crowd.settle(start + bursts / BURSTS - time.monotonic())
    return bursts * len(clients)


def _until_it_rests(server: Server, crowd: Crowd) -> None:
    """Waits until the server has been idle for a while: everything sent has been read."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        used = server.cpu_seconds
        crowd.settle(AT_REST)
        if server.cpu_seconds - used < 0.0003:
            return
    raise RuntimeError("the server does not come to rest")


def fan_out(serve: Serve, effort: Effort) -> Iterator[Measured]:
    for viewers in VIEWERS[:1] if effort.quick else [effort.people(each) for each in VIEWERS]:
        looking = [(user, (STAR,)) for user in names(viewers)]
        with serve(looking) as talk, closing(talk), Crowd(talk.server) as crowd:
            change = talk.star(crowd)
            talk.join(crowd, looking)
            crowd.settle(1.0)
            frames = viewers + talk.frames_to_star
            _round(crowd, change, frames)  # warm-up
            with _Meter(f"one change to {viewers} viewers", talk) as meter:
                deadline = time.monotonic() + SLOW_ENOUGH
                for _ in range(effort.rounds(ROUNDS)):
                    _round(crowd, change, frames)
                    meter.done += viewers
                    if time.monotonic() > deadline:
                        break
            yield meter.measured


def _round(crowd: Crowd, change: Callable[[], None], frames: int) -> None:
    goal = crowd.frames + frames
    change()
    time.sleep(REST)
    crowd.until_frames(goal)


def arrive(serve: Serve, effort: Effort) -> Iterator[Measured]:
    users = names(ARRIVING // 2 if effort.quick else ARRIVING)
    looking = [
        (user, [users[(number + step) % len(users)] for step in range(1, WATCHED + 1)])
        for number, user in enumerate(users)
    ]
    with serve(looking) as talk, closing(talk), Crowd(talk.server) as crowd:
        with _Meter(f"arrivals that look at {WATCHED}", talk) as meter:
            talk.join(crowd, looking)
            crowd.settle(1.5)  # later writes are part of the cost
            meter.done = len(users)
        yield meter.measured


def lookup(serve: Serve, effort: Effort) -> Iterator[Measured]:
    with serve(()) as talk, closing(talk), Crowd(talk.server) as crowd:
        talk.prepare_lookup(crowd)
        for way, (http, request) in talk.lookups().items():
            status, body = http.fetch(request)
            if status != 200 or b"error" in body:
                raise RuntimeError(f"not answered: {status} {body[:200]!r}")
            with _Meter(f"bulk reads of 200, {way}", talk) as meter:
                deadline = time.monotonic() + SLOW_ENOUGH / 2
                for _ in range(effort.rounds(REQUESTS)):
                    http.fetch(request)
                    meter.done += 1
                    if time.monotonic() > deadline:
                        break
            yield meter.measured


class _Meter:
    """CPU time of the server and of the load inside the block."""

    def __init__(self, figure: str, talk: Talk) -> None:
        self._figure, self._talk = figure, talk
        self.done = 0

    def __enter__(self) -> _Meter:
        self._cpu, self._store = self._talk.server.cpu_seconds, self._talk.store_cpu()
        self._share = share()
        self._load = self._share.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            return
        self._share.__exit__(None, None, None)
        cpu = self._talk.server.cpu_seconds - self._cpu
        store = (self._talk.store_cpu() - self._store) / cpu
        self.seconds = self._load.seconds
        self.measured = Measured(self._figure, self.done / cpu, self._load.used, store=store)


WORKS: dict[str, Callable[[Serve, Effort], Iterator[Measured]]] = {
    "beats": beats,
    "fan-out": fan_out,
    "arrive": arrive,
    "lookup": lookup,
}

AIMS: dict[tuple[str, str], float] = {
    ("heartbeats", "starlette"): 5.0,
    ("one change to 10000 viewers", "nchan"): 1.0,
    ("one change to 10000 viewers", "channels-daphne"): 20.0,
    ("one change to 10000 viewers", "channels-uvicorn"): 20.0,
    ("bulk reads of 200, get", "starlette"): 5.0,
}
"""Targets for the ratio of herenow to this peer, by the peer's figure."""

FLOORS = {"arrivals that look at 50": 1_800.0, "bulk reads of 200, by a service": 1_000.0}
"""Targets for herenow's own figures."""


def beside(scenario: str, peers: Sequence[Peer], effort: Effort) -> Result:
    """Runs the scenario with herenow and each peer alternately, as often as there are repeats."""
    result = Result(f"{scenario}-peers", against="the peer")
    sides: dict[str, Serve] = {US: ourselves}
    for peer in peers:
        if scenario in peer.cannot:
            result.figures.append(Figure(f"{peer.name}: {peer.cannot[scenario]}", "cannot", []))
            continue
        try:
            result.notes.append(f"{peer.name}: {peer.install()}. {peer.does}")
        except NotInstalledError as why:
            result.notes.append(f"{peer.name}: left out. {why}")
            continue
        if scenario in peer.differs:
            result.notes.append(f"{peer.name}, {scenario}: {peer.differs[scenario]}")
        sides[peer.name] = peer.serve
    measured = _in_turn(scenario, sides, effort, result.notes)
    result.figures[:0] = _figures(measured)
    result.notes += [_shares(side, all_of_it) for side, all_of_it in measured.items()]
    return result


def _in_turn(scenario: str, sides: dict[str, Serve], effort: Effort, notes: list[str]) -> dict[str, list[Measured]]:
    measured: dict[str, list[Measured]] = {side: [] for side in sides}
    for _ in range(effort.repeats):
        for side, serve in sides.items():
            try:
                measured[side] += WORKS[scenario](serve, effort)
            except (RuntimeError, OSError) as error:
                if side == US:
                    raise
                notes.append(f"{side}: did not do it. {error}")
    return measured


def _figures(measured: dict[str, list[Measured]]) -> Iterator[Figure]:
    ours = _by_figure(measured[US])
    for name, values in ours.items():
        yield Figure(name, UNIT, values, no_less=FLOORS.get(name))
    for side, all_of_it in measured.items():
        if side == US:
            continue
        for name, values in _by_figure(all_of_it).items():
            same = ours.get(name) or next(iter(ours.values()))  # herenow's first way is the one to compare with
            yield Figure(f"{name}: {side}", UNIT, same, values, at_least=AIMS.get((name, side)))


def _by_figure(measured: list[Measured]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for each in measured:
        found.setdefault(each.figure, []).append(each.per_cpu_second)
    return found


def _shares(side: str, measured: list[Measured]) -> str:
    if not measured:
        return f"{side}: nothing was measured"
    load = max(each.load for each in measured)
    store = statistics.median(each.store for each in measured)
    beside = f"; its store used {store:.2f} CPU s for each of its own, not counted" if store else ""
    pace = statistics.median(each.pace for each in measured)
    came = f"; {pace:.0f} came per second, which is what it could bear or what there were" if pace else ""
    return f"{side}: the load used at most {load:.2f} of its core{beside}{came}"
