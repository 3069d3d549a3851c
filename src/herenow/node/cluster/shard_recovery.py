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
from herenow.core.settle import wake_at
from herenow.errors import Unavailable
from herenow.kit.deadline import read_within, write_within
from herenow.kit.retry import Backoff, retry
from herenow.node.cluster.dead_nodes import DeadNodeSweep
from herenow.node.cluster.log_reader import LogReader
from herenow.node.cluster.staleness import Staleness, StaleReason
from herenow.node.context import Context
from herenow.node.people import Person
from herenow.node.records import Records
from herenow.ports import Offer

SETTLE = 5_000
"""Milliseconds every node has to notice the loss and to begin to offer what it knows."""

STILL_OFFERING = 2_000
"""Milliseconds that an offer leaves at the least until then."""

RETRY = 0.5
AFTER_A_MISTAKE = 5.0
"""Seconds until the next try: what went wrong unforeseen does so again, and says so at length."""

PART = 500

log = structlog.get_logger(__name__)


class ShardRecovery:
    def __init__(
        self, context: Context, records: Records, staleness: Staleness, log_reader: LogReader, sweep: DeadNodeSweep
    ) -> None:
        self._context = context
        self._node_lease = context.settings.node_lease
        self._records = records
        self._staleness = staleness
        self._log_reader = log_reader
        self._sweep = sweep
        self._healed_at: dict[int, float] = {}
        """Shard → monotonic time at which we last knew it to be settled after a loss."""

    async def start(self) -> None:
        """Before anything is known here: what is not settled now has lost nothing of ours. The store is new, or others, who
        say so themselves, are healing it."""
        found = await read_within(self._context.engine.due(range(self._context.engine.shards), 0, 1))
        unsettled = [shard for shard, due in found.items() if not due.settled]
        if unsettled:
            log.info("store.settling", shards=len(unsettled))
        for shard in unsettled:
            self._close(shard, news=False)

    def report_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """See `StoreEvents.on_loss`. Answers to requests from before the shard recovered are ignored: they show a loss that
        the shard has recovered from."""
        if shard in self._context.authority.closed_shards:
            return
        if asked is not None and asked < self._healed_at.get(shard, float("-inf")):
            return
        self._context.metrics.shards_lost += 1
        log.warning("shard.lost", shard=shard, row=row)
        self._close(shard, news=True)

    def _close(self, shard: int, *, news: bool) -> None:
        self._context.authority.closed_shards.add(shard)
        for person in self._context.people.in_shard(shard):
            for session in person.held:
                session.forget_assertion()
        self._staleness.mark_stale([shard], StaleReason.SHARD_LOST)
        self._context.tasks.spawn(self._heal(shard, news=news), f"heal-{shard}")

    async def _heal(self, shard: int, *, news: bool) -> None:
        await _until_done(lambda: self._settle(shard))
        self._context.authority.closed_shards.discard(shard)
        healed_at = self._healed_at[shard] = self._context.clock.monotonic()
        await _until_done(lambda: self._log_reader.read_again(shard))
        if shard in self._context.authority.closed_shards:
            return  # lost again, and healing again
        self._staleness.clear([shard], StaleReason.SHARD_LOST)
        for person in self._context.people.in_shard(shard):
            self._records.resume(person)
        self._records.retry_waiting()
        if news:
            log.info("shard.healed", shard=shard)
        await _until_done(lambda: self._sweep.own(shard, self._context.authority.epoch), self._node_lease)
        await asyncio.sleep(self._node_lease)
        if shard in self._context.authority.closed_shards or self._healed_at[shard] != healed_at:
            return  # lost again: rows of leases that are gone with it may not be back yet
        await _until_done(lambda: self._sweep.orphans(shard), self._node_lease)

    async def _settle(self, shard: int) -> None:
        if self._context.authority.retired:  # our offers would have no receipt, and each gives the shard more time
            raise Unavailable("this node's epoch has ended, and another has not begun yet")
        too_late = True
        while too_late:
            await write_within(self._context.engine.unsettle(shard, self._context.clock.now()))
            await self._offer(shard)
            too_late = await self._is_settled(shard)
        while not await self._is_settled(shard):
            await asyncio.sleep(RETRY)
            if not await self._records.still_joined(shard):  # it has lost them once more
                await self._offer(shard)

    async def _is_settled(self, shard: int) -> bool:
        return await write_within(self._context.engine.settle(shard, self._context.clock.now(), SETTLE))

    async def _offer(self, shard: int) -> None:
        """All we know, and then our row, as a receipt."""
        offers = [self._offered(person) for person in self._context.people.to_offer(shard)]
        for start in range(0, len(offers), PART):
            since = self._context.clock.now() - SETTLE + STILL_OFFERING
            await write_within(self._context.engine.offer(shard, offers[start : start + PART], since))
        await self._records.rejoin(shard)

    def _offered(self, person: Person) -> Offer:
        presence = person.record.presence
        assert person.record.stored is not None
        return Offer(
            person.user,
            version_of(person.record.stored),
            person.record.stored,
            wake_at(presence, self._context.timings),
            unsaved=bool(presence.last_seen or presence.chosen),
        )


async def _until_done(work: Callable[[], Awaitable[None]], longest: float = RETRY) -> None:
    """Whatever it raises: a shard whose healing has ended stays closed, because nobody else opens it. From one try to the
    next it takes up to `longest` seconds: a walk over a shard is not to be begun twice a second."""
    backoff = Backoff(RETRY, longest)
    while True:
        try:
            await retry(work, backoff, on_error=_log_retry)
            return
        except Exception as error:
            log.error("heal.failed", error=repr(error), exc_info=True)
            await asyncio.sleep(AFTER_A_MISTAKE)


def _log_retry(error: Exception) -> None:
    log.warning("heal.again", error=str(error))
