"""This node's sign of life to the others, and its watch over theirs.

One row per node, whatever it holds: a random epoch and a counter that is raised every third of `node_lease`. A node is
dead when one observer has seen its counter stand still for a whole lease on its own monotonic clock, through unbroken
successful reads, and has marked it by compare-and-set: no clock of two machines is ever compared. If more than half of
the nodes stand still it is the store that was away, and everybody gets one more lease.

Who marked a node retires it: first its fence in every shard, so that nothing of it can be committed any more, then a
walk brings its sessions into grace, with its last renewal as evidence of life. A node that finds itself marked takes a
new epoch and asserts what it holds under that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from herenow.errors import Unavailable, UnknownOutcome
from herenow.ports import Engine, Lease
from herenow.service.calls import reading, writing
from herenow.service.clock import NodeClock
from herenow.service.metrics import Metrics
from herenow.service.standing import Standing
from herenow.service.sweep import Sweep
from herenow.service.tasks import Tasks

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Observed:
    counter: int
    since: float
    """Monotonic time at which we first saw this counter in an unbroken row of reads."""


class LeaseKeeper:
    def __init__(
        self,
        *,
        engine: Engine,
        standing: Standing,
        clock: NodeClock,
        sweep: Sweep,
        tasks: Tasks,
        metrics: Metrics,
        node_lease: float,
        on_new_epoch: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._standing = standing
        self._clock = clock
        self._sweep = sweep
        self._tasks = tasks
        self._metrics = metrics
        self._node_lease = node_lease
        self._on_new_epoch = on_new_epoch
        self._counter = 0
        self._observed: dict[str, _Observed] = {}
        self._marked: dict[str, float] = {}
        """Dead rows we saw, with the monotonic time at which we first did."""
        self._extra_until = 0.0
        self._retiring: set[str] = set()

    async def start(self) -> None:
        self._clock.start_at(await reading(self._engine.store_time()))
        if not await self._renew():
            raise Unavailable("the store did not take this node's lease")

    async def keep(self) -> None:
        """Once every third of the lease."""
        try:
            self._clock.follow(await reading(self._engine.store_time()))
            if not await self._renew():
                await self._begin_epoch()
            await self._observe(await reading(self._engine.leases()))
        except (Unavailable, UnknownOutcome):
            self._observed.clear()  # what we see next is not an unbroken row of reads
            raise

    async def end(self) -> None:
        """Last act of a node that stops, after all its commits are acknowledged."""
        await writing(self._engine.drop_lease(self._standing.epoch))

    async def _renew(self) -> bool:
        asked = self._clock.monotonic()
        self._counter += 1
        lease = Lease(self._standing.epoch, self._counter, self._clock.now())
        granted = await writing(self._engine.renew(lease))
        if granted:
            self._standing.renewed = asked
        return granted

    async def _begin_epoch(self) -> None:
        old = self._standing.epoch
        self._standing.begin_epoch()
        self._counter = 0
        self._metrics.epochs += 1
        log.warning("lease.lost", old=old, new=self._standing.epoch)
        if await self._renew():
            self._on_new_epoch()

    async def _observe(self, leases: list[Lease]) -> None:
        now = self._clock.monotonic()
        others = [lease for lease in leases if lease.epoch != self._standing.epoch]
        alive = [lease for lease in others if not lease.dead]
        for lease in alive:
            known = self._observed.get(lease.epoch)
            if known is None or known.counter != lease.counter:
                self._observed[lease.epoch] = _Observed(lease.counter, now)
        for gone in self._observed.keys() - {lease.epoch for lease in alive}:
            del self._observed[gone]
        still = [lease for lease in alive if now - self._observed[lease.epoch].since >= self._node_lease]
        if len(still) * 2 > len(alive) + 1:
            if not self._extra_until:
                self._extra_until = now + self._node_lease
            if now < self._extra_until:
                still = []
        else:
            self._extra_until = 0.0
        for lease in still:
            if await writing(self._engine.mark_dead(lease.epoch, lease.counter)):
                log.warning("node.dead", epoch=lease.epoch)
                self._retire(lease)
        self._take_over([lease for lease in others if lease.dead], now)

    def _take_over(self, dead: list[Lease], now: float) -> None:
        """A marked row that does not go away: whoever marked it died while retiring it."""
        self._marked = {lease.epoch: self._marked.get(lease.epoch, now) for lease in dead}
        for lease in dead:
            if now - self._marked[lease.epoch] >= 2 * self._node_lease:
                self._retire(lease)

    def _retire(self, lease: Lease) -> None:
        if lease.epoch not in self._retiring:
            self._retiring.add(lease.epoch)
            self._tasks.spawn(self._retired(lease), "retire")

    async def _retired(self, lease: Lease) -> None:
        try:
            await self._sweep.retire({lease.epoch: lease.renewed_at})
            await writing(self._engine.drop_lease(lease.epoch))
        except (Unavailable, UnknownOutcome) as error:
            log.warning("retire.failed", epoch=lease.epoch, error=str(error))  # its row stays: taken over again
        finally:
            self._retiring.discard(lease.epoch)
