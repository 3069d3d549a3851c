"""Recovers a shard that lost data: it was emptied, or rolled back by a failover.

Sockets are the truth; the store can be rebuilt. While a shard is unsettled (in recovery), a missing record means nothing:
views are stale, no record is committed, and every node gives back (offers) the records it knows. After `SETTLE`, or a
little after the last offer, the shard is settled (recovered): decisions resume, held sessions are committed again, known
users are read again. An offered record may be out of date, so a walk over the shard follows: at once for sessions under this
node's epoch that it does not hold, a lease later for those of dead nodes.

Offers have no log entry, so all must be made before the shard is settled. A node that is too late (it was cut off or
suspended) finds the shard settled after its offers, and unsettles it again.
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

SETTLE = 5_000  # milliseconds in which every node must notice the loss and begin its offers
STILL_OFFERING = 2_000  # milliseconds at least between an offer and the end of the recovery

RETRY = 0.5
AFTER_A_MISTAKE = 5.0
"""Seconds until the next attempt after an unexpected exception, which will probably be raised and logged again."""

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
        self._recovered_at: dict[int, float] = {}  # shard → monotonic time at which it was last settled after data loss

    async def start(self) -> None:
        """Join the recovery of all shards that are in recovery when this node starts: the store is new, or other nodes
        are recovering it. No data loss is reported."""
        found = await read_within(self._context.engine.due(range(self._context.engine.shards), 0, 1))
        unsettled = [shard for shard, due in found.items() if not due.settled]
        if unsettled:
            log.info("store.settling", shards=len(unsettled))
        for shard in unsettled:
            self._close(shard, news=False)

    def report_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """Begin the recovery of a shard that lost data, unless it has begun. A report with `asked` before the end of
        the last recovery is ignored: it is the same loss. `row` and `asked` are those of `StoreEvents.on_loss`."""
        if shard in self._context.authority.closed_shards:
            return
        if asked is not None and asked < self._recovered_at.get(shard, float("-inf")):
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
        self._context.tasks.spawn(self._recover(shard, news=news), f"heal-{shard}")

    async def _recover(self, shard: int, *, news: bool) -> None:
        await _until_done(lambda: self._settle(shard))
        self._context.authority.closed_shards.discard(shard)
        recovered_at = self._recovered_at[shard] = self._context.clock.monotonic()
        await _until_done(lambda: self._log_reader.read_again(shard))
        if shard in self._context.authority.closed_shards:
            return  # lost data again: another task recovers it
        self._staleness.clear([shard], StaleReason.SHARD_LOST)
        for person in self._context.people.in_shard(shard):
            self._records.resume(person)
        self._records.retry_waiting()
        if news:
            log.info("shard.healed", shard=shard)
        await _until_done(lambda: self._sweep.own(shard, self._context.authority.epoch), self._node_lease)
        await asyncio.sleep(self._node_lease)
        if shard in self._context.authority.closed_shards or self._recovered_at[shard] != recovered_at:
            return  # lost data again: lease rows may be missing, so live nodes could be taken for dead
        await _until_done(lambda: self._sweep.orphans(shard), self._node_lease)

    async def _settle(self, shard: int) -> None:
        if self._context.authority.retired:  # `rejoin` would fail, and each offer delays the end of the recovery
            raise Unavailable("this node was declared dead and has not taken a new epoch yet")
        too_late = True
        while too_late:
            await write_within(self._context.engine.unsettle(shard, self._context.clock.now()))
            await self._offer(shard)
            too_late = await self._is_settled(shard)
        while not await self._is_settled(shard):
            await asyncio.sleep(RETRY)
            if not await self._records.still_joined(shard):  # it lost the offers again
                await self._offer(shard)

    async def _is_settled(self, shard: int) -> bool:
        return await write_within(self._context.engine.settle(shard, self._context.clock.now(), SETTLE))

    async def _offer(self, shard: int) -> None:
        """Give all records that this node knows back to the shard. Then write this node's fence row (the number of its
        last batch) again, which shows later that the shard still has them."""
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
    """Call `work` again after every exception until it succeeds, since only this task can reopen the shard. `longest`:
    longest pause in seconds, so that a walk over a shard is not repeated twice a second."""
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
