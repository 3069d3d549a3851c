"""A thousand changes per second, and a thousand viewers who watch all changing users.

One frame per change would be a million frames per second, more than any loop can send. The node sends each viewer what
has changed since its last frame, a few times a second: a delivery is one value that reached one viewer, in any frame.
The comparison is the bare loop with one frame per change, at a rate it can handle.

The delay is measured twice: from a change to the moment it is passed to the viewers' sockets, by the node's own
histogram (coarse: the figure is the upper bound of the bucket that holds the 99th percentile), and to the moment some
viewers have read it, by `since`, which includes the load's own delay and a resolution of one millisecond.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import msgspec

from bench.effort import Effort
from bench.fan_out import MODES, bare_crowd
from bench.load import Crowd, Http, handshake, names, share, subscription, token
from bench.report import Figure, Result
from bench.server import Server, herenow

VIEWERS = 1_000
TARGETS = 500
CHANGES = 1_000
"""Per second."""

BARE_CHANGES = 60
"""Per second; about half of what the bare loop can send."""

STEP = 0.01
"""Seconds between two groups of changes."""

WARM_UP = 3.0
MEASURE = 8.0
WATCHED = 10
"""Viewers whose frames are parsed, not only counted."""


@dataclass(frozen=True)
class Measured:
    deliveries: float
    """Per server CPU second."""
    frames: float
    """Per second and viewer."""
    node_p99: float
    """Milliseconds."""
    viewer_p50: float
    viewer_p99: float
    server_share: float
    load_share: float


def run(effort: Effort) -> Result:
    viewers = effort.people(VIEWERS)
    ours, theirs = [], []
    for _ in range(effort.repeats):
        measured, frame = _herenow(viewers, effort)
        ours.append(measured)
        theirs.append(_bare(viewers, frame, effort))
    return Result(
        "storm",
        [
            Figure(
                f"{CHANGES} changes per second to {viewers} viewers",
                "deliveries per server CPU s",
                [each.deliveries for each in ours],
                theirs,
                at_least=15.0,
            ),
            Figure("change to socket, p99, by the node", "ms", [each.node_p99 for each in ours], at_most=100.0),
            Figure("change to viewer, p50, by `since`", "ms", [each.viewer_p50 for each in ours]),
            Figure("change to viewer, p99, by `since`", "ms", [each.viewer_p99 for each in ours], at_most=100.0),
        ],
        [
            f"each viewer watches {TARGETS} people and gets {ours[-1].frames:.1f} frames per second; "
            f"the bare loop sends {BARE_CHANGES} per second, one per change",
            f"share of the server's core {ours[-1].server_share:.2f}, of the load's {ours[-1].load_share:.2f}",
        ],
    )


def _herenow(viewers: int, effort: Effort) -> tuple[Measured, bytes]:
    watching, changing = names(viewers), names(TARGETS, "target")
    with herenow(itertools.product(watching, changing)) as server, Crowd(server) as crowd:
        targets = crowd.join(map(handshake, changing), frames_each=2)
        clients = crowd.join(map(handshake, watching), frames_each=2)
        crowd.ask((client, subscription(changing)) for client in clients)
        storm = Storm(server, crowd, targets, clients)
        storm.blow(effort.seconds(WARM_UP))
        return storm.measure(effort.seconds(MEASURE)), storm.one_status


def _bare(viewers: int, frame: bytes, effort: Effort) -> float:
    with bare_crowd(viewers, frame) as (server, crowd, change):
        changes = round(effort.seconds(MEASURE) * BARE_CHANGES)
        cpu, start = server.cpu_seconds, time.monotonic()
        for number in range(changes):
            change()
            crowd.settle(start + (number + 1) / BARE_CHANGES - time.monotonic())
        crowd.until_frames(changes * viewers)
        return changes * viewers / (server.cpu_seconds - cpu)


class Storm:
    def __init__(self, server: Server, crowd: Crowd, targets: list[int], viewers: list[int]) -> None:
        self._server = server
        self._crowd = crowd
        self._viewers = len(viewers)
        self._changes = itertools.cycle([(target, mode) for mode in MODES for target in targets])
        self._values = 0
        self._frames = 0
        self._late: list[float] = []
        self.one_status = b""
        for viewer in viewers:
            crowd.listeners[viewer] = self._count
        for viewer in viewers[:: max(1, len(viewers) // WATCHED)]:
            crowd.listeners[viewer] = self._look

    def blow(self, seconds: float) -> None:
        start, steps = time.monotonic(), round(seconds / STEP)
        for step in range(steps):
            for target, change in itertools.islice(self._changes, round(CHANGES * STEP)):
                self._crowd.send(target, change)
            self._crowd.settle(start + (step + 1) * STEP - time.monotonic())

    def measure(self, seconds: float) -> Measured:
        self._values = self._frames = 0
        self._late.clear()
        buckets, cpu = delivery_buckets(self._server), self._server.cpu_seconds
        with share() as load:
            self.blow(seconds)
        cpu = self._server.cpu_seconds - cpu
        self._late.sort()
        return Measured(
            deliveries=self._values / cpu,
            frames=self._frames / self._viewers / load.seconds,
            node_p99=p99_of(buckets, delivery_buckets(self._server)) * 1000,
            viewer_p50=self._late[len(self._late) // 2],
            viewer_p99=self._late[len(self._late) * 99 // 100],
            server_share=cpu / load.seconds,
            load_share=load.used,
        )

    def _count(self, payload: bytes) -> None:
        self._frames += 1
        self._values += payload.count(b'"user_id"')

    def _look(self, payload: bytes) -> None:
        now = time.time() * 1000
        self._count(payload)
        frame = msgspec.json.decode(payload, type=_Statuses)
        self._late += [now - status.since for status in frame.statuses]
        if not frame.statuses:
            self.one_status = payload


class _Status(msgspec.Struct):
    since: int


class _Statuses(msgspec.Struct):
    statuses: list[_Status] = []


def delivery_buckets(server: Server) -> dict[float, float]:
    """Upper bound in seconds → deliveries up to it since the start of the node."""
    with Http(server, token("bench", scope="service")) as http:
        _, body = http.fetch(http.request("GET", "/metrics"))
    buckets: dict[float, float] = {}
    for line in body.decode().splitlines():
        name, _, value = line.rpartition(" ")
        if "delivery_seconds_bucket" in name:
            bound = name.partition('le="')[2].partition('"')[0]
            buckets[math.inf if bound == "+Inf" else float(bound)] = float(value)
    return buckets


def p99_of(before: dict[float, float], after: dict[float, float]) -> float:
    counts = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    total = max(counts.values(), default=0.0)
    return next((bound for bound, count in counts.items() if count >= 0.99 * total), math.nan)
