"""Whether fifty million users fit into the store, and are read as fast as a million.

Too many for the memory of this process: they are written and forgotten, and then a few are read again. While the store
processes batches of some shards, those of others are prepared; so it takes as long as the slower of the two.
"""

from __future__ import annotations

import asyncio
import time
from random import Random

import uvloop

from bench.effort import Effort
from bench.reads import TIMES, TOGETHER, figures, notes, read_in_turns
from bench.redis import BATCH, EPOCH, NOW, Arrivals, Store, valkey_server
from bench.report import Figure, Result
from herenow.core.record import version_of
from herenow.core.shards import shard_of
from herenow.engines.redis import RedisEngine
from herenow.engines.redis.client import parse_url
from herenow.errors import Unavailable, UnknownOutcome
from herenow.ports import Batch, Committed, Engine, Write

PEOPLE = 50_000_000
MINUTES = 60
"""Time limit."""

UNDER_WAY = 4
"""Batches: enough that the store always has one, and few enough that none waits long for its answer."""

AGAIN = 0.1
"""Seconds before a store that did not answer is called again."""


def run(effort: Effort) -> Result:
    people = PEOPLE // 1000 if effort.quick else PEOPLE
    with valkey_server() as store:
        return uvloop.run(_huge(store, people, effort))


async def _huge(store: Store, people: int, effort: Effort) -> Result:
    engine = RedisEngine(parse_url(store.url), capacity=people)
    await engine.open({})
    for shard in range(engine.shards):
        await engine.join(shard, EPOCH, 0)
        await engine.unsettle(shard, NOW)
        await engine.settle(shard, NOW, 0)
    dice = Random(7)
    before, began, started = store.used_bytes, store.cpu_seconds, time.monotonic()
    await Filling(engine).arrive(people, Arrivals(dice))
    took, used = time.monotonic() - started, store.cpu_seconds - began
    per_user = (store.used_bytes - before) / people
    reads = await read_in_turns(
        engine, store.pid, lambda: [f"u{dice.randrange(people):011d}" for _ in range(TOGETHER)], effort.rounds(TIMES)
    )
    await engine.close()
    many = f"{people:,}".replace(",", " ")
    return Result(
        "redis-huge",
        [
            Figure(f"{many} people online, each", "bytes", [per_user], at_most=64),
            Figure(f"an arrival among {many}, in the store", "CPU µs", [used / people * 1e6]),
            *figures([reads], many),
            Figure(f"until {many} were there", "s", [took]),
        ],
        [f"written in batches of {BATCH}, {UNDER_WAY} of them under way", *notes([reads])],
    )


class Filling:
    """Writes users, one batch per shard at a time and several shards concurrently."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = [0] * engine.shards
        self._under_way: dict[int, asyncio.Task[None]] = {}
        """By shard, which has one batch at a time; the oldest first."""

    async def arrive(self, people: int, arrivals: Arrivals) -> None:
        shards = self._engine.shards
        waiting: list[list[Write]] = [[] for _ in range(shards)]
        for number in range(people):
            user, record = f"u{number:011d}", arrivals.next()
            shard = shard_of(user, shards)
            waiting[shard].append(Write(user, None, record, version_of(record) + 300_000, b"\x01"))
            if len(waiting[shard]) == BATCH:
                await self._begin(shard, waiting[shard])
                waiting[shard] = []
        for shard, writes in enumerate(waiting):
            await self._begin(shard, writes)
        while self._under_way:
            await self._end(next(iter(self._under_way)))

    async def _begin(self, shard: int, writes: list[Write]) -> None:
        if shard in self._under_way:
            await self._end(shard)
        elif len(self._under_way) == UNDER_WAY:
            await self._end(next(iter(self._under_way)))
        self._under_way[shard] = asyncio.create_task(self._write(shard, writes), name=f"shard {shard}")
        await asyncio.sleep(0)  # let it be sent

    async def _end(self, shard: int) -> None:
        await self._under_way.pop(shard)

    async def _write(self, shard: int, writes: list[Write]) -> None:
        """Repeats until written: within half an hour a machine may freeze for longer than a call waits."""
        while True:
            number = self._numbers[shard]
            try:
                answer = await self._engine.commit(Batch(shard, EPOCH, number, number + 1, tuple(writes)))
            except (Unavailable, UnknownOutcome):
                await self._jump(shard)
            else:
                assert isinstance(answer, Committed)
                self._numbers[shard] = number + 1
                return

    async def _jump(self, shard: int) -> None:
        """After this the batch of unknown outcome has run or never will; users already written are found when it is
        repeated.
        """
        self._numbers[shard] += 2
        while True:
            try:
                await self._engine.jump(shard, EPOCH, self._numbers[shard])
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(AGAIN)
            else:
                return
