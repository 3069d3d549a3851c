"""A shard lost something: it was emptied, or rolled back by a failover. How does nobody notice?

Sockets are the truth, the store is an index that can be rebuilt. While a shard is unsettled, absence in it says nothing:
views are kept and marked `stale`, nothing is decided, and every node offers the records it still knows (put if absent or
older). After `SETTLE` the shard is settled: decisions resume, what is held is asserted again, what is watched is read
again, and a lease later the shard is walked for sessions whose holder is no more.
"""

from __future__ import annotations

import asyncio

import structlog

from herenow.core.machine import Timings, wake_at
from herenow.errors import Unavailable, UnknownOutcome
from herenow.ports import Engine, Offer
from herenow.service.calls import writing
from herenow.service.clock import Clock
from herenow.service.decide import Decider
from herenow.service.hub import Hub
from herenow.service.metrics import Metrics
from herenow.service.people import People, Person
from herenow.service.standing import Standing
from herenow.service.sweep import Sweep
from herenow.service.tail import Tail
from herenow.service.tasks import Tasks
from herenow.service.writer import Writer

SETTLE = 5_000
"""Milliseconds every node has to notice the loss and to offer what it knows."""

RETRY = 0.5
PART = 500

log = structlog.get_logger(__name__)


class Healing:
    def __init__(
        self,
        *,
        engine: Engine,
        people: People,
        hub: Hub,
        standing: Standing,
        clock: Clock,
        timings: Timings,
        tasks: Tasks,
        metrics: Metrics,
        node_lease: float,
    ) -> None:
        self._engine = engine
        self._people = people
        self._hub = hub
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._tasks = tasks
        self._metrics = metrics
        self._node_lease = node_lease
        self._healing: set[int] = set()

    def attach(self, *, writer: Writer, decider: Decider, tail: Tail, sweep: Sweep) -> None:
        """Those that notice a loss are also those that resume after it."""
        self._writer = writer
        self._decider = decider
        self._tail = tail
        self._sweep = sweep

    def lost(self, shard: int, row: int | None) -> None:
        """Somebody noticed that this shard does not have what we know it had."""
        if shard in self._healing:
            return
        self._healing.add(shard)
        self._standing.closed_shards.add(shard)
        self._metrics.shards_lost += 1
        log.warning("shard.lost", shard=shard, row=row)
        self._hub.set_stale(shard, stale=True)
        self._tasks.spawn(self._heal(shard), f"heal-{shard}")

    async def _heal(self, shard: int) -> None:
        while True:
            try:
                await self._settle(shard)
                break
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(RETRY)
        self._healing.discard(shard)
        self._standing.closed_shards.discard(shard)
        await self._resume(shard)

    async def _settle(self, shard: int) -> None:
        await writing(self._engine.unsettle(shard, self._clock.now()))
        while True:
            await self._offer(shard)
            if await writing(self._engine.settle(shard, self._clock.now(), SETTLE)):
                break
            await asyncio.sleep(RETRY)
        await self._writer.rejoin(shard)

    async def _offer(self, shard: int) -> None:
        offers = [self._offered(person) for person in self._people.to_offer(shard, self._clock.now())]
        for start in range(0, len(offers), PART):
            await writing(self._engine.offer(shard, offers[start : start + PART]))

    def _offered(self, person: Person) -> Offer:
        presence = person.presence
        assert person.record is not None
        return Offer(
            person.user,
            presence.version,
            person.record,
            wake_at(presence, self._timings),
            unsaved=bool(presence.last_seen or presence.chosen),
        )

    async def _resume(self, shard: int) -> None:
        for person in self._people.in_shard(shard):
            person.settled = True
        while True:
            try:
                await self._tail.read_again(shard)
                break
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(RETRY)
        if shard not in self._healing:
            self._hub.set_stale(shard, stale=False)
        for person in self._people.in_shard(shard):
            if person.sessions or person.asks:
                self._decider.touch(person)
        self._decider.try_again()
        log.info("shard.healed", shard=shard)
        await asyncio.sleep(self._node_lease)
        await self._sweep_orphans(shard)

    async def _sweep_orphans(self, shard: int) -> None:
        try:
            await self._sweep.orphans(shard)
        except (Unavailable, UnknownOutcome) as error:
            log.warning("sweep.failed", shard=shard, error=str(error))


