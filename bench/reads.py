"""Time to read a thousand users from a store at once, overall and undisturbed.

Reads alternate with plain computing of the same length, until enough undisturbed reads were made (see `bench.calm`) or
the machine turns out to be too busy.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.calm import WAITED, Computing, Taken, Times, taken
from bench.report import Figure
from herenow.errors import Unavailable
from herenow.ports import Engine

TOGETHER = 1_000
TIMES = 300
PATIENCE = 5
"""At most this many times the wanted number of undisturbed reads."""

PAUSE = 0.002
"""Seconds between two measurements, so that a read does not follow another directly."""

CALM = (
    "in calm: the hypervisor took nothing, and neither store nor reader was sent away or waited more than "
    f"{WAITED / 1e6:g} ms for its core"
)


@dataclass
class Reads:
    read: Times = field(default_factory=Times)
    computed: Times = field(default_factory=Times)
    machine: str = ""
    """Activity of the machine during the reads."""


async def read_in_turns(engine: Engine, store: int, draw: Callable[[], list[str]], times: int) -> Reads:
    """`store` is its process id; `draw` returns a thousand user ids."""
    pids = (os.getpid(), store)
    computing = Computing(statistics.median([await _read(engine, draw()) for _ in range(10)]))
    done, began = Reads(), taken(pids)
    while len(done.read.calm) < times and len(done.read.all) < PATIENCE * times:
        asked = draw()
        before = taken(pids)
        took = await _read(engine, asked)
        done.read.add(took, calm=taken(pids).calm_since(before))
        await asyncio.sleep(PAUSE)
        before = taken(pids)
        took = computing.turn()
        done.computed.add(took, calm=taken(pids).calm_since(before))
        await asyncio.sleep(PAUSE)
    done.machine = _told(done.read, taken(pids), began)
    return done


async def _read(engine: Engine, asked: list[str]) -> float:
    """Milliseconds until an answer; retried, so that a store that pauses for a second does not fail the run."""
    began = time.perf_counter()
    while True:
        try:
            await engine.load(asked)
        except Unavailable:
            await asyncio.sleep(PAUSE)
        else:
            return (time.perf_counter() - began) * 1000


def _told(read: Times, now: Taken, before: Taken) -> str:
    stolen, switched = (now.stolen - before.stolen) * 10, now.switched - before.switched
    return (
        f"{len(read.all)} reads, {len(read.calm)} of them in calm: meanwhile the hypervisor took {stolen} ms, and reader "
        f"and store were sent away {switched} times and waited {(now.waited - before.waited) / 1e6:.0f} ms for a core"
    )


def figures(repeats: Sequence[Reads], many: str) -> list[Figure]:
    """`many`: the number of users, in words."""
    what, plain = f"{TOGETHER} of {many} read together", "plain computing as long as a read"
    return [
        Figure(f"{what}, p50", "ms", [each.read.p50 for each in repeats]),
        Figure(f"{what}, p99", "ms", [each.read.p99 for each in repeats]),
        Figure(f"{what}, p99 in calm", "ms", [each.read.calm_p99 for each in repeats], at_most=10),
        Figure("reads left out of those in calm", "%", [each.read.left_out for each in repeats]),
        Figure(f"{plain}, p99", "ms", [each.computed.p99 for each in repeats]),
        Figure(f"{plain}, p99 in calm", "ms", [each.computed.calm_p99 for each in repeats]),
    ]


def notes(repeats: Sequence[Reads]) -> list[str]:
    return [CALM, *(each.machine for each in repeats)]
