"""Write rate of last seens, and read times of offline users, with many users in the ledger.

The ledgers are called in this process as the ledger writer calls them: batches of its size, one after the other, of
random users, one in ten of them new. Both ledgers are durable: an acknowledged write is on the disk. PostgreSQL has its
default settings, on the other core.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.postgres_server import PostgresServer

from bench import machine
from bench.effort import Effort
from bench.report import Figure, Result
from herenow.ledgers import open_ledger
from herenow.node.records.ledger_writer import PART
from herenow.ports import Ledger

PEOPLE = 500_000
SECONDS = 10.0
READS = 100
READ = 1_000
"""Users in one read."""

NOW = 1_790_000_000_000
AIMS = {"PostgreSQL": 20_000.0, "SQLite": 10_000.0}
"""Upserts per second."""


def run(effort: Effort) -> Result:
    people = PEOPLE // 10 if effort.quick else PEOPLE
    figures: list[Figure] = []
    places: dict[str, Callable[[], AbstractContextManager[str]]] = {"PostgreSQL": _postgres, "SQLite": _sqlite}
    for name, place in places.items():
        upserts, reads = [], []
        for _ in range(effort.repeats):
            with place() as url:
                written, read = asyncio.run(_measure(url, people, effort))
            upserts.append(written)
            reads.append(read)
        figures += [
            Figure(f"{name}, last seens written", "per second", upserts, no_less=AIMS[name]),
            Figure(f"{name}, {READ} people who are not here, p50", "ms", [each[0] for each in reads]),
            Figure(f"{name}, {READ} people who are not here, p99", "ms", [each[1] for each in reads]),
        ]
    return Result("last-seen", figures, [f"{people} people in the ledger; {PART} in a batch, one in ten is new"])


@contextmanager
def _postgres() -> Iterator[str]:
    server = PostgresServer(quick=False)
    try:
        server.make().start()
        machine.pin(server.pid, machine.cores().server)
        yield server.url()
    finally:
        server.close()


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder:
        yield f"sqlite:///{folder}/herenow.db"


async def _measure(url: str, people: int, effort: Effort) -> tuple[float, tuple[float, float]]:
    ledger = open_ledger(url)
    await ledger.open()
    try:
        dice = random.Random(1)
        for start in range(0, people, PART):
            await ledger.save_last_seen({_name(number): NOW for number in range(start, min(start + PART, people))})
        return await _writes(ledger, people, effort, dice), await _reads(ledger, people, effort, dice)
    finally:
        await ledger.close()


async def _writes(ledger: Ledger, people: int, effort: Effort, dice: random.Random) -> float:
    """Per second."""
    written, new, spent = 0, people, 0.0
    while spent < effort.seconds(SECONDS):
        users = dice.sample(range(people), PART - PART // 10)
        batch = {_name(number): NOW + written for number in (*users, *range(new, new + PART // 10))}
        new += PART // 10
        began = time.monotonic()
        await ledger.save_last_seen(batch)
        spent += time.monotonic() - began
        written += len(batch)
    return written / spent


async def _reads(ledger: Ledger, people: int, effort: Effort, dice: random.Random) -> tuple[float, float]:
    """Milliseconds at the median and the 99th percentile."""
    took = []
    for _ in range(effort.rounds(READS)):
        asked = [_name(number) for number in dice.sample(range(people), READ)]
        began = time.monotonic()
        found = await ledger.remembered(asked)
        took.append((time.monotonic() - began) * 1000)
        assert len(found) == READ
    took.sort()
    return took[len(took) // 2], took[len(took) * 99 // 100]


def _name(number: int) -> str:
    """Ids that are not in the order of arrival, as real ids rarely are."""
    return f"user-{number * 2_654_435_761 % 4_294_967_296:010}"
