"""This node's sign of life to the others, and its watch over theirs.

One row per node, whatever it holds: a random epoch and a counter that is raised every third of `node_lease`. A node is
dead when one observer has seen its counter stand still for a whole lease and the third between two renewals, on its own
monotonic clock, through unbroken successful reads, and has marked it by compare-and-set: no clock of two machines is ever
compared. If more than half of the nodes stand still it is the store that was away, and everybody gets one more lease.

Who marked a node retires it: first its fence in every shard, so that nothing of it can be committed any more, then a
walk brings its sessions into grace, with its last renewal as evidence of life. A node that finds itself marked takes a
new epoch and asserts what it holds under that one. A node whose row is gone sooner than anybody could have marked and
retired it knows that the store has lost it, and puts it back: what is offered to the store under its epoch stays right.
Its counter goes on from where it stood, since the next store may be one that still has the row. If it was wrong after all
(others retired it in a store from which it was cut off), a shard refuses it, and it takes a new epoch.

A node that tried to renew and holds no lease decides nothing, so that what it shows may be wrong, and says so. Who merely
slept past its lease is not called that: its first try tells.

The rows also say what time it is for the others (see `clock`): who starts, or comes back, takes the time of those who are
there, also when the store's clock was set a while ago and they are still on their way to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.cluster.dead_nodes import DeadNodeSweep
from herenow.node.cluster.staleness import Staleness, StaleReason
from herenow.node.context import Context
from herenow.ports import Lease

STILL = 1.33
"""Leases for which a counter must be seen to stand still. A node is cut off up to a third of a lease after the last renewal
that others saw, and from then on has a whole one. A hair less than four thirds: looks come every third, and the fourth is
not to be missed by one."""

LATE = 2.5
"""Leases after which a late node is no longer waited for, should no node be able to mark it dead."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Observed:
    counter: int
    since: float
    """Monotonic time at which we first saw this counter in an unbroken row of reads."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another node, as this one sees it."""

    epoch: str
    dead: bool
    """Marked, and not yet retired."""
    still_for: float | None
    """Seconds for which its counter has not been seen to move; a third of a lease is nothing. None: we do not know, because
    the store was away in between."""


class LeaseKeeper:
    def __init__(
        self, context: Context, sweep: DeadNodeSweep, staleness: Staleness, on_new_epoch: Callable[[], None]
    ) -> None:
        self._authority = context.authority
        self._clock = context.clock
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._node_lease = context.settings.node_lease
        self._engine = context.engine
        self._sweep = sweep
        self._staleness = staleness
        self._on_new_epoch = on_new_epoch
        self._counter = 0
        self._observed: dict[str, _Observed] = {}
        self._marked: dict[str, float] = {}
        """Dead rows we saw, with the monotonic time at which we first did."""
        self._mine: set[str] = set()
        """Those among them that we tried to mark: ours to retire, whatever became of the answer."""
        self._extra_until = 0.0
        self._observed_at = float("-inf")
        self._granted_at = 0
        """The store's time of the last renewal it took."""
        self._announced = True
        """What we hold has been asserted, or is being asserted, under the present epoch."""
        self._to_retire: dict[str, int] = {}
        """Dead epochs that the next walk is for, and their last renewals."""
        self._retiring: dict[str, int] = {}
        """Those that the walk under way is for."""
        self._leases: list[Lease] = []
        self.trouble: str | None = None
        """What the store said instead of renewing; None: it renewed."""

    async def start(self) -> None:
        self._clock.start_at(await self._cluster_time())
        if not await self._renew(begins=True):
            raise Unavailable("the store did not take this node's lease")

    async def keep(self) -> None:
        """Once every third of the lease."""
        if self._authority.left:
            return
        try:
            asked = self._clock.monotonic()
            store_time = await read_within(self._engine.store_time())
            self._clock.follow(store_time, asked)
            if not await self._is_still_ours(store_time):
                await self._begin_epoch()
            self._granted_at = store_time
            await self._observe(await read_within(self._engine.leases()))
        except (Unavailable, UnknownOutcome) as error:
            self._observed.clear()  # what we see next is not an unbroken row of reads
            for shard in range(self._engine.shards):
                self._authority.outages.on_failure(shard)
            self._metrics.engine_errors += 1
            self.trouble = str(error)
            self._say_whether_we_decide()
            raise
        self.trouble = None
        self._say_whether_we_decide()

    def _say_whether_we_decide(self) -> None:
        everywhere = self._staleness.shards
        if self._authority.holds_lease or self._authority.left:
            self._staleness.clear(everywhere, StaleReason.NO_LEASE)
        else:
            self._staleness.mark_stale(everywhere, StaleReason.NO_LEASE)

    @property
    def others(self) -> list[Other]:
        """As we last saw them."""
        now = self._clock.monotonic()
        seen = [(lease, self._observed.get(lease.epoch)) for lease in self._leases]
        return [
            Other(lease.epoch, lease.dead, None if known is None else now - known.since)
            for lease, known in seen
            if lease.epoch != self._authority.epoch
        ]

    async def bury(self, epochs: Collection[str]) -> None:
        """Somebody who cannot err says that the processes that wrote under these epochs have ended: nobody need wait until
        their leases do. Where the store is away, the usual way finds them."""
        try:
            for lease in await read_within(self._engine.leases()):
                if lease.epoch in epochs and lease.epoch != self._authority.epoch and not lease.dead:
                    await self._mark(lease)
        except (Unavailable, UnknownOutcome) as error:
            log.warning("bury.failed", epochs=list(epochs), error=str(error))
        finally:
            self._begin_to_retire()

    async def end(self) -> None:
        """Last act of a node that stops, after all its commits are acknowledged: nobody need look for it."""
        self._authority.left = True  # whatever is refused from now on was not lost
        epoch = self._authority.epoch
        for shard in range(self._engine.shards):
            await write_within(self._engine.retire(shard, epoch))
        await write_within(self._engine.drop_lease(epoch))

    async def _cluster_time(self) -> int:
        """The store's time, unless those who are there have another."""
        rows = {lease.epoch: lease for lease in await self._living()}
        if not rows:
            return await read_within(self._engine.store_time())
        latest = max(lease.renewed_at for lease in rows.values())
        store_time = await read_within(self._engine.store_time())
        if store_time - latest <= self._node_lease * 1000:
            return max(store_time, latest)
        await asyncio.sleep(self._node_lease / 3 + 1)
        moved = [row for row in await self._living() if row.epoch in rows and row != rows[row.epoch]]
        if not moved:  # all that is there was left behind
            return await read_within(self._engine.store_time())
        return max(lease.renewed_at for lease in moved)

    async def _living(self) -> list[Lease]:
        return [lease for lease in await read_within(self._engine.leases()) if not lease.dead]

    async def _is_still_ours(self, store_time: int) -> bool:
        if self._authority.retired:
            return False
        if await self._renew() or self._authority.left:
            return True
        return self._cannot_be_dead(store_time) and await self._put_back()

    async def _renew(self, *, begins: bool = False) -> bool:
        asked = self._clock.monotonic()
        self._counter += 1
        lease = Lease(self._authority.epoch, self._counter, self._clock.now())
        granted = await write_within(self._engine.renew(lease, begins=begins))
        if granted:
            self._authority.renewed = asked
            if not self._announced:
                self._announced = True
                self._on_new_epoch()
        return granted

    def _cannot_be_dead(self, store_time: int) -> bool:
        """Is it sooner than a lease since our row last moved, by our clock and by the store's? Ours may have stood still
        with the whole machine, and the store's may be another's since a failover."""
        since = self._clock.monotonic() - self._authority.renewed
        return max(since, abs(store_time - self._granted_at) / 1000) < self._node_lease

    async def _put_back(self) -> bool:
        if granted := await self._renew(begins=True):
            log.warning("lease.put_back", epoch=self._authority.epoch)
        return granted

    async def _begin_epoch(self) -> None:
        self._clock.catch_up(await self._cluster_time())
        old = self._authority.epoch
        self._authority.begin_epoch()
        self._counter = 0
        self._announced = False
        self._metrics.epochs += 1
        log.warning("lease.lost", old=old, new=self._authority.epoch)
        self._tasks.spawn(self._leave_behind(old), "retire")
        await self._renew(begins=True)

    async def _leave_behind(self, epoch: str) -> None:
        """Whoever marked us does the same; where our row is merely gone, nobody else would."""
        for shard in range(self._engine.shards):
            try:
                await write_within(self._engine.retire(shard, epoch))
            except (Unavailable, UnknownOutcome) as error:
                log.warning("retire.failed", epoch=epoch, shard=shard, error=str(error))

    async def _observe(self, leases: list[Lease]) -> None:
        now = self._clock.monotonic()
        if now - self._observed_at > self._node_lease * 2 / 3:
            self._observed.clear()  # we were stopped ourselves, and perhaps all of us were
        self._observed_at = now
        self._leases = leases
        self._sweep.saw(leases)
        others = [lease for lease in leases if lease.epoch != self._authority.epoch]
        alive = [lease for lease in others if not lease.dead]
        for lease in alive:
            known = self._observed.get(lease.epoch)
            if known is None or known.counter != lease.counter:
                self._observed[lease.epoch] = _Observed(lease.counter, now)
        for gone in self._observed.keys() - {lease.epoch for lease in alive}:
            del self._observed[gone]
        stood = [now - self._observed[lease.epoch].since for lease in alive]
        still = [lease for lease, how_long in zip(alive, stood, strict=True) if how_long >= self._node_lease * STILL]
        quiet = sum(how_long > self._node_lease / 2 for how_long in stood)
        if any(self._node_lease / 2 < how_long < self._node_lease * LATE for how_long in stood):
            self._authority.outages.hold_ends()
        try:
            for lease in still if self._may_mark(len(still), quiet, len(alive) + 1, now) else ():
                await self._mark(lease)
            self._take_over([lease for lease in others if lease.dead], now)
        finally:
            self._begin_to_retire()

    async def _mark(self, lease: Lease) -> None:
        self._mine.add(lease.epoch)
        if await write_within(self._engine.mark_dead(lease.epoch, lease.counter)):
            log.warning("node.dead", epoch=lease.epoch)
            self._retire(lease)
        else:
            self._mine.discard(lease.epoch)  # somebody else's, or alive after all

    def _may_mark(self, still: int, quiet: int, nodes: int, now: float) -> bool:
        """When more than half of the nodes stand still, it is rather the store that was away: one more lease for all.
        Who has missed one renewal counts too: of those who stopped together, some are seen to stand still a look later."""
        if not still or quiet * 2 <= nodes:
            self._extra_until = 0.0
            return True
        if not self._extra_until:
            self._extra_until = now + self._node_lease
        return now >= self._extra_until

    def _take_over(self, dead: list[Lease], now: float) -> None:
        """Marked rows that are still there: we could not retire ours, or whoever marked it died while retiring it."""
        self._marked = {lease.epoch: self._marked.get(lease.epoch, now) for lease in dead}
        self._mine &= self._marked.keys()
        for lease in dead:
            if lease.epoch in self._mine or now - self._marked[lease.epoch] >= 2 * self._node_lease:
                self._retire(lease)

    def _retire(self, lease: Lease) -> None:
        if lease.epoch not in self._retiring:
            self._to_retire[lease.epoch] = lease.renewed_at

    def _begin_to_retire(self) -> None:
        """All of them together, for each walk goes over everybody; those that are found during one, after it."""
        if self._to_retire and not self._retiring:
            self._retiring, self._to_retire = self._to_retire, {}
            self._tasks.spawn(self._retired(self._retiring), "retire")

    async def _retired(self, dead: Mapping[str, int]) -> None:
        try:
            await self._sweep.retire(dead)
            for epoch in dead:
                await write_within(self._engine.drop_lease(epoch))
        except (Unavailable, UnknownOutcome) as error:
            log.warning("retire.failed", epochs=list(dead), error=str(error))  # their rows stay: taken over again
        finally:
            self._retiring = {}
            self._begin_to_retire()
