"""Renews this node's lease, and finds dead nodes by theirs.

One row per node: a random epoch and a counter that is raised every third of `node_lease`. A node is dead when an observer
has seen the same counter for four thirds of a lease, on its own monotonic clock and in reads without a failure between
them, and has marked the row by compare-and-set; clocks of two machines are never compared. If the counters of more than
half of the nodes do not move, the store was probably away: all get one more lease.

The observer that marked a node retires it: it deletes its fence in every shard, then a walk moves its sessions into grace,
with the last renewal as evidence of life. A node that finds itself marked takes a new epoch and commits its sessions under
it. If a node's row is missing sooner than another one could have marked and retired it, it puts the row back: the store
has lost it. The counter continues, in case a failover brings the old row back. If the node was wrong (it was retired in a
store from which it was cut off), a shard refuses its epoch, and it takes a new one.

After a failed renewal without a lease, all views are stale. A node that was merely suspended is not stale before it tried.

The rows also have the cluster's time (`kit/clock`): a node that starts or returns takes it from the live nodes, which may
still be adjusting to a store clock that was changed.
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
"""Leases without a move of the counter until a node is dead. A node may be cut off a third of a lease after the last
renewal that others saw, and then has a whole lease. Slightly less than 4/3, so that the fourth read is not just missed."""

LATE = 2.5
"""Leases after which a late node is no longer waited for, should no node be able to mark it dead."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Observed:
    counter: int
    since: float  # monotonic time of the first read with this counter, without a failed read since


@dataclass(frozen=True, slots=True)
class Other:
    epoch: str
    dead: bool  # marked dead, and not retired yet
    still_for: float | None
    """Seconds without a move of its counter; a third of a lease is normal. None: unknown, because a read failed."""


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
        """Epochs of dead rows → monotonic time at which this node first saw them dead."""
        self._mine: set[str] = set()
        """Dead epochs that this node tried to mark: it retires them, also if the attempt got no answer."""
        self._extra_until = 0.0
        self._observed_at = float("-inf")
        self._granted_at = 0  # store time of the last successful renewal
        self._announced = True  # False: `on_new_epoch` must be called after the first renewal under this epoch
        self._to_retire: dict[str, int] = {}  # dead epochs for the next walk → last renewal
        self._retiring: dict[str, int] = {}  # the same for the walk that is running
        self._leases: list[Lease] = []
        self.trouble: str | None = None  # error of the last `keep`; None: it succeeded

    async def start(self) -> None:
        self._clock.start_at(await self._cluster_time())
        if not await self._renew(begins=True):
            raise Unavailable("the live store did not accept this node's lease")

    async def keep(self) -> None:
        """Renew this node's lease, and check the leases of the other nodes. Call every third of a lease."""
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
            self._observed.clear()  # observations must have no failed read in between
            self._authority.outages.suspect_all()
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
        now = self._clock.monotonic()
        seen = [(lease, self._observed.get(lease.epoch)) for lease in self._leases]
        return [
            Other(lease.epoch, lease.dead, None if known is None else now - known.since)
            for lease, known in seen
            if lease.epoch != self._authority.epoch
        ]

    async def bury(self, epochs: Collection[str]) -> None:
        """Mark the nodes with these epochs as dead and retire them (`DeadNodeSweep.retire`). Their processes have
        ended, as the supervisor knows. If the store is unreachable, the usual checks find them later."""
        try:
            for lease in await read_within(self._engine.leases()):
                if lease.epoch in epochs and lease.epoch != self._authority.epoch and not lease.dead:
                    await self._mark(lease)
        except (Unavailable, UnknownOutcome) as error:
            log.warning("bury.failed", epochs=list(epochs), error=str(error))
        finally:
            self._begin_to_retire()

    async def end(self) -> None:
        """Retire this node's own epoch in all shards, so that it cannot commit any more, and delete its lease. Call
        last when a node stops, after all commits are acknowledged."""
        self._authority.left = True  # a refusal from now on is no data loss
        epoch = self._authority.epoch
        for shard in range(self._engine.shards):
            await write_within(self._engine.retire(shard, epoch))
        await write_within(self._engine.drop_lease(epoch))

    async def _cluster_time(self) -> int:
        """Return the time that the live nodes follow (epoch ms), taken from their lease rows; the store's time if there
        are no live nodes."""
        rows = {lease.epoch: lease for lease in await self._living()}
        if not rows:
            return await read_within(self._engine.store_time())
        latest = max(lease.renewed_at for lease in rows.values())
        store_time = await read_within(self._engine.store_time())
        if store_time - latest <= self._node_lease * 1000:
            return max(store_time, latest)
        await asyncio.sleep(self._node_lease / 3 + 1)
        moved = [row for row in await self._living() if row.epoch in rows and row != rows[row.epoch]]
        if not moved:  # no row is renewed: their nodes have ended
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
        """True if the last renewal is less than a lease ago, so that no other node can have marked this one dead. Both
        this node's clock and the store's must show it: ours may have stopped with the machine, the store's may differ
        after a failover."""
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
        """Retire this node's old epoch in all shards, so that it cannot commit there. No other node does it if the old
        lease row was lost and not marked dead."""
        for shard in range(self._engine.shards):
            try:
                await write_within(self._engine.retire(shard, epoch))
            except (Unavailable, UnknownOutcome) as error:
                log.warning("retire.failed", epoch=epoch, shard=shard, error=str(error))

    async def _observe(self, leases: list[Lease]) -> None:
        now = self._clock.monotonic()
        if now - self._observed_at > self._node_lease * 2 / 3:
            self._observed.clear()  # this process was suspended, perhaps with all others
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
            self._mine.discard(lease.epoch)  # another node marked it, or it is alive

    def _may_mark(self, still: int, quiet: int, nodes: int, now: float) -> bool:
        """Return whether nodes with an unmoved lease counter may be marked dead. False, for one more lease, if more
        than half of the nodes missed a renewal: then the store was probably away. `still`: number of nodes to be
        marked; `quiet`: number that missed at least one renewal, since nodes that stop together are not all found in
        the same read."""
        if not still or quiet * 2 <= nodes:
            self._extra_until = 0.0
            return True
        if not self._extra_until:
            self._extra_until = now + self._node_lease
        return now >= self._extra_until

    def _take_over(self, dead: list[Lease], now: float) -> None:
        """Queue dead nodes to be retired (`DeadNodeSweep.retire`), if their lease rows are still there: those marked
        dead by this node, and others after two leases, because the node that marked them may have died."""
        self._marked = {lease.epoch: self._marked.get(lease.epoch, now) for lease in dead}
        self._mine &= self._marked.keys()
        for lease in dead:
            if lease.epoch in self._mine or now - self._marked[lease.epoch] >= 2 * self._node_lease:
                self._retire(lease)

    def _retire(self, lease: Lease) -> None:
        if lease.epoch not in self._retiring:
            self._to_retire[lease.epoch] = lease.renewed_at

    def _begin_to_retire(self) -> None:
        """Start a task that retires all queued dead epochs with one walk over the records, unless one is running; that
        task calls this again when it ends."""
        if self._to_retire and not self._retiring:
            self._retiring, self._to_retire = self._to_retire, {}
            self._tasks.spawn(self._retired(self._retiring), "retire")

    async def _retired(self, dead: Mapping[str, int]) -> None:
        try:
            await self._sweep.retire(dead)
            for epoch in dead:
                await write_within(self._engine.drop_lease(epoch))
        except (Unavailable, UnknownOutcome) as error:
            log.warning("retire.failed", epochs=list(dead), error=str(error))  # the rows stay, so `_take_over` retries
        finally:
            self._retiring = {}
            self._begin_to_retire()
