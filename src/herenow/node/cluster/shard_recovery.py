"""A shard lost something: it was emptied, or rolled back by a failover. How does nobody notice?

Sockets are the truth, the store is an index that can be rebuilt. While a shard is unsettled, absence in it says nothing:
views are kept and marked `stale`, nothing is decided, and every node offers the records it still knows (put if absent or
older). After `SETTLE`, or a little after the last offer, the shard is settled: decisions resume, what is held is asserted
again, what is watched is read again. What was offered may be older than the truth, so the shard is walked: at once for
sessions of our own that we do not hold, and a lease later for those whose holder is no more.

Offers leave no trace in the log, so they must all be in before anybody trusts the shard again. A node that comes too late
(it was cut off, or frozen) finds the shard settled when it has made its offers, and unsettles it once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from herenow.core.record import version_of
from herenow.core.settle import Timings, wake_at
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.clock import Clock
from herenow.kit.deadline import read_within, write_within
from herenow.kit.tasks import Tasks
from herenow.node.cluster.dead_nodes import Sweep
from herenow.node.cluster.log_reader import Tail
from herenow.node.cluster.staleness import Doubt, Freshness
from herenow.node.metrics import Metrics
from herenow.node.people import People, Person
from herenow.node.records.authority import Standing
from herenow.node.records.decider import Decider
from herenow.node.records.writer import Writer
from herenow.ports import Engine, Offer

SETTLE = 5_000
"""Milliseconds every node has to notice the loss and to begin to offer what it knows."""

STILL_OFFERING = 2_000
"""Milliseconds that an offer leaves at the least until then."""

RETRY = 0.5
AFTER_A_MISTAKE = 5.0
"""Seconds until the next try: what went wrong unforeseen does so again, and says so at length."""

PART = 500

log = structlog.get_logger(__name__)


class Healing:
    def __init__(
        self,
        *,
        engine: Engine,
        people: People,
        freshness: Freshness,
        standing: Standing,
        clock: Clock,
        timings: Timings,
        tasks: Tasks,
        metrics: Metrics,
        node_lease: float,
    ) -> None:
        self._engine = engine
        self._people = people
        self._freshness = freshness
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._tasks = tasks
        self._metrics = metrics
        self._node_lease = node_lease
        self._healed_at: dict[int, float] = {}
        """Shard → monotonic time at which we last knew it to be settled after a loss."""

    def attach(self, *, writer: Writer, decider: Decider, tail: Tail, sweep: Sweep) -> None:
        """Those that notice a loss are also those that resume after it."""
        self._writer = writer
        self._decider = decider
        self._tail = tail
        self._sweep = sweep

    async def start(self) -> None:
        """Before anything is known here: what is not settled now has lost nothing of ours. The store is new, or others, who
        say so themselves, are healing it."""
        found = await read_within(self._engine.due(range(self._engine.shards), 0, 1))
        unsettled = [shard for shard, due in found.items() if not due.settled]
        if unsettled:
            log.info("store.settling", shards=len(unsettled))
        for shard in unsettled:
            self._close(shard, news=False)

    def lost(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """Somebody noticed that this shard does not have what we know it had (see `OnLoss`). What was asked before it healed
        tells of the loss that it has healed from."""
        if shard in self._standing.closed_shards:
            return
        if asked is not None and asked < self._healed_at.get(shard, float("-inf")):
            return
        self._metrics.shards_lost += 1
        log.warning("shard.lost", shard=shard, row=row)
        self._close(shard, news=True)

    def _close(self, shard: int, *, news: bool) -> None:
        self._standing.closed_shards.add(shard)
        for person in self._people.in_shard(shard):
            for session in person.sessions:
                session.doubt()
        self._freshness.doubt([shard], Doubt.LOST)
        self._tasks.spawn(self._heal(shard, news=news), f"heal-{shard}")

    async def _heal(self, shard: int, *, news: bool) -> None:
        await _until_done(lambda: self._settle(shard))
        self._standing.closed_shards.discard(shard)
        healed_at = self._healed_at[shard] = self._clock.monotonic()
        await _until_done(lambda: self._tail.read_again(shard))
        if shard in self._standing.closed_shards:
            return  # lost again, and healing again
        self._freshness.trust([shard], Doubt.LOST)
        for person in self._people.in_shard(shard):
            self._decider.resume(person)
        self._decider.try_again()
        if news:
            log.info("shard.healed", shard=shard)
        await _until_done(lambda: self._sweep.own(shard, self._standing.epoch), self._node_lease)
        await asyncio.sleep(self._node_lease)
        if shard in self._standing.closed_shards or self._healed_at[shard] != healed_at:
            return  # lost again: rows of leases that are gone with it may not be back yet
        await _until_done(lambda: self._sweep.orphans(shard), self._node_lease)

    async def _settle(self, shard: int) -> None:
        if self._standing.retired:  # our offers would have no receipt, and each gives the shard more time
            raise Unavailable("this node's epoch has ended, and another has not begun yet")
        too_late = True
        while too_late:
            await write_within(self._engine.unsettle(shard, self._clock.now()))
            await self._offer(shard)
            too_late = await self._is_settled(shard)
        while not await self._is_settled(shard):
            await asyncio.sleep(RETRY)
            if not await self._writer.still_joined(shard):  # it has lost them once more
                await self._offer(shard)

    async def _is_settled(self, shard: int) -> bool:
        return await write_within(self._engine.settle(shard, self._clock.now(), SETTLE))

    async def _offer(self, shard: int) -> None:
        """All we know, and then our row, as a receipt."""
        offers = [self._offered(person) for person in self._people.to_offer(shard, self._clock.now())]
        for start in range(0, len(offers), PART):
            since = self._clock.now() - SETTLE + STILL_OFFERING
            await write_within(self._engine.offer(shard, offers[start : start + PART], since))
        await self._writer.rejoin(shard)

    def _offered(self, person: Person) -> Offer:
        presence = person.presence
        assert person.record is not None
        return Offer(
            person.user,
            version_of(person.record),
            person.record,
            wake_at(presence, self._timings),
            unsaved=bool(presence.last_seen or presence.chosen),
        )


async def _until_done(work: Callable[[], Awaitable[None]], longest: float = RETRY) -> None:
    """Whatever it raises: a shard whose healing has ended stays closed, because nobody else opens it. From one try to the
    next it takes up to `longest` seconds: a walk over a shard is not to be begun twice a second."""
    pause = RETRY
    while True:
        try:
            await work()
            return
        except (Unavailable, UnknownOutcome) as error:
            log.warning("heal.again", error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
        except Exception as error:
            log.error("heal.failed", error=repr(error), exc_info=True)
            await asyncio.sleep(AFTER_A_MISTAKE)
