"""Two nodes on one Valkey: delay of a change on the other node, store commands per connect, and recovery time of an
emptied store.

Both nodes and the store share the server's core, until the store is emptied: then the second node uses the other core.
A change is a mode set on a socket of the first node, seen by viewers of the second; its delay is the time from its
`since` to the moment a viewer has read it, including the load's own delay. Of the sessions that an emptied store loses,
ten thousand have a socket, the others are REST sessions of an external gateway.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import msgspec

from bench import machine
from bench.effort import Effort
from bench.fan_out import MODES
from bench.load import Crowd, Http, handshake, names, subscription, token
from bench.redis import Store, valkey_server
from bench.report import Figure, Result
from bench.server import Server, herenow_nodes
from herenow.engines.redis import RedisEngine
from herenow.engines.redis.client import parse_url

TARGETS = 200
VIEWERS = 10
CHANGES = 1_000
"""Per second."""

STEP = 0.01
WARM_UP = 3.0
MEASURE = 8.0
ARRIVALS = 10_000
WATCHED = 100
"""Number of new users that are watched on the other node."""

SESSIONS = 100_000
BEATS = 10_000
"""In one request."""

WHOLE_WITHIN = 60.0


@dataclass(frozen=True)
class Stage:
    store: Store
    first: Server
    second: Server


def run(effort: Effort) -> Result:
    late, commands, whole, notes = [], [], [], []
    arrivals = effort.people(ARRIVALS)
    sessions = SESSIONS // 10 if effort.quick else SESSIONS
    for _ in range(effort.repeats):
        with _stage() as stage:
            late.append(_lateness(stage, effort))
            with Crowd(stage.first) as crowd:
                commands.append(_arrive(stage, crowd, arrivals))
                _beat(stage, crowd, sessions - arrivals)
                seconds, lost = _empty(stage, crowd, sessions)
                whole.append(seconds)
                notes.append(f"of {sessions} sessions {lost} were not there again")
    return Result(
        "nodes",
        [
            Figure(
                "change on one node to a viewer on the other, p50",
                "ms",
                [sorted(each)[len(each) // 2] for each in late],
            ),
            Figure(
                f"the same, p99, at {CHANGES} changes per second",
                "ms",
                [sorted(each)[len(each) * 99 // 100] for each in late],
                at_most=100.0,
            ),
            Figure(f"a storm of {arrivals} arrivals, store commands each", "", commands),
            Figure(f"emptied store, until {sessions} sessions are back and views fresh", "s", whole, at_most=10.0),
        ],
        notes,
    )


@contextmanager
def _stage() -> Iterator[Stage]:
    targets, viewers = names(TARGETS, "target"), names(VIEWERS, "viewer")
    contacts = [*itertools.product(viewers, targets), *(("viewer-of-storm", user) for user in names(WATCHED))]
    with ExitStack() as stack:
        store = stack.enter_context(valkey_server())
        first, second = stack.enter_context(
            herenow_nodes(2, contacts, engine=store.url, beat_every=3600, dead_after=7200)
        )
        yield Stage(store, first, second)


def _lateness(stage: Stage, effort: Effort) -> list[float]:
    """Milliseconds."""
    late: list[float] = []

    def look(payload: bytes) -> None:
        now = time.time() * 1000
        frame = msgspec.json.decode(payload, type=_Frame)
        late.extend(now - since for since in frame.sinces)

    with Crowd(stage.first) as here, Crowd(stage.second) as there:
        targets = here.join(map(handshake, names(TARGETS, "target")), frames_each=2)
        viewers = there.join(map(handshake, names(VIEWERS, "viewer")), frames_each=2)
        there.ask((viewer, subscription(names(TARGETS, "target"))) for viewer in viewers)
        for viewer in viewers:
            there.listeners[viewer] = look
        changes = itertools.cycle([(target, mode) for mode in MODES for target in targets])
        for seconds in (effort.seconds(WARM_UP), effort.seconds(MEASURE)):
            late.clear()
            start = time.monotonic()
            for step in range(round(seconds / STEP)):
                for target, change in itertools.islice(changes, round(CHANGES * STEP)):
                    here.send(target, change)
                until = start + (step + 1) * STEP
                while time.monotonic() < until:
                    there.read(max(0.0, min(0.002, until - time.monotonic())))
                    here.read()
        return late


class _Status(msgspec.Struct):
    since: int | None = None


class _Frame(msgspec.Struct):
    statuses: list[_Status] = []
    since: int | None = None

    @property
    def sinces(self) -> list[int]:
        told = [status.since for status in self.statuses] or [self.since]
        return [since for since in told if since is not None]


def _arrive(stage: Stage, crowd: Crowd, arrivals: int) -> float:
    """Commands that the store executed per connect, including those inside scripts; the nodes' periodic ones are
    negligible.
    """
    seen: list[bytes] = []
    with Crowd(stage.second) as there:
        [viewer] = there.join([handshake("viewer-of-storm")], frames_each=2)
        there.ask([(viewer, subscription(names(WATCHED)))])
        there.listeners[viewer] = seen.append
        before = stage.store.commands
        crowd.join(map(handshake, names(arrivals)), frames_each=2)
        used = stage.store.commands - before
        there.settle(2.0)
    statuses = b"".join(seen)
    online = statuses.count(b'"status":"online"')
    if online < WATCHED or b'"status":"offline"' in statuses:
        raise RuntimeError(f"of {WATCHED} who arrived {online} were seen, or somebody was shown offline")
    return used / arrivals


def _beat(stage: Stage, crowd: Crowd, people: int) -> None:
    """Creates users without a socket, through the second node."""
    users = names(people, "beaten")
    with Http(stage.second, token("gateway", scope="service")) as http:
        for start in range(0, len(users), BEATS):
            beats = [{"user_id": user, "device_id": "d", "platform": "mobile"} for user in users[start : start + BEATS]]
            status, body = http.fetch(http.request("POST", "/api/v1/heartbeats", msgspec.json.encode(beats)))
            if status != 200 or msgspec.json.decode(body)["accepted"] != len(beats):
                raise RuntimeError(f"beats were not taken: {status} {body[:200]!r}")
            crowd.read()


def _empty(stage: Stage, crowd: Crowd, sessions: int) -> tuple[float, int]:
    """(seconds until all sessions are back and nothing is stale, number of missing sessions)"""
    machine.pin(stage.second.pid, machine.cores().load)  # the load core is idle now
    crowd.settle(3.0)
    expected = asyncio.run(_records(stage.store))
    if expected < sessions:
        raise RuntimeError(f"only {expected} of {sessions} were there to be lost")
    start = time.monotonic()
    stage.store.client.flushall()
    stale = False
    while time.monotonic() - start < WHOLE_WITHIN:
        crowd.settle(0.1)
        now_stale = sum(_stale(server) for server in (stage.first, stage.second)) > 0
        stale = stale or now_stale
        seconds = time.monotonic() - start  # counting them also takes time
        if stale and not now_stale and asyncio.run(_records(stage.store)) >= expected:
            return seconds, 0
    return time.monotonic() - start, expected - asyncio.run(_records(stage.store))


def _stale(server: Server) -> float:
    with Http(server, token("bench", scope="service")) as http:
        _, body = http.fetch(http.request("GET", "/metrics"))
    return next(
        float(line.rpartition(" ")[2])
        for line in body.decode().splitlines()
        if line.startswith("herenow_stale_shards ")
    )


async def _records(store: Store) -> int:
    engine = RedisEngine(parse_url(store.url))
    count = 0
    try:
        for shard in range(engine.shards):
            page = await engine.walk(shard, None, 1000)
            count += len(page.records)
            while page.cursor is not None:
                page = await engine.walk(shard, page.cursor, 1000)
                count += len(page.records)
    finally:
        await engine.close()
    return count
