"""How this node's commits reach a shard: in batches, one in flight, each with the number the fence expects.

Answers: was this write taken, was there something else, or do we not know? And if we do not know, how do we make sure
that a doubtful batch can no longer run late?

    n1  commit(last=7, next=8) ──────────── no answer ────────────▶ (runs late, expects row 7) ✗ refused
    n1                          jump(9) ─▶ row was 7 or 8: now 9
    n1                                     commit(last=9, next=10) …

Whatever the doubtful batch did, its users are read and decided again, so nobody needs to know what it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.ports import Batch, Conflict, Engine, Fenced, Write, Written
from herenow.service.calls import reading, writing
from herenow.service.metrics import Metrics
from herenow.service.standing import Standing
from herenow.service.tasks import Tasks

BATCH = 500
"""Writes per commit: what a store does in a few milliseconds, so that others get their turn."""

RETRY = 0.2
"""Seconds between two tries to resolve a doubt."""


class _Lane:
    """One shard: what waits, and the number of the last batch that was acknowledged or jumped over."""

    __slots__ = ("busy", "epoch", "number", "queue", "shard")

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.queue: list[tuple[Write, asyncio.Future[Written | Conflict]]] = []
        self.busy = False
        self.epoch = ""
        self.number = 0


class Writer:
    def __init__(
        self,
        engine: Engine,
        standing: Standing,
        tasks: Tasks,
        metrics: Metrics,
        on_loss: Callable[[int, int | None], None],
    ) -> None:
        """`on_loss(shard, row)`: the fence does not have what we know was acknowledged."""
        self._engine = engine
        self._standing = standing
        self._tasks = tasks
        self._metrics = metrics
        self._on_loss = on_loss
        self._lanes = [_Lane(shard) for shard in range(engine.shards)]

    async def commit(self, shard: int, write: Write) -> Written | Conflict:
        """Raises `Unavailable` (nothing happened; try again later) or `UnknownOutcome` (read, then decide again)."""
        lane = self._lanes[shard]
        answer: asyncio.Future[Written | Conflict] = asyncio.get_running_loop().create_future()
        lane.queue.append((write, answer))
        if not lane.busy:
            lane.busy = True
            await self._commit_waiting(lane)
            if lane.queue:
                self._tasks.spawn(self._drain(lane), f"writer-{shard}")
            else:
                lane.busy = False
        return await answer

    async def rejoin(self, shard: int) -> None:
        """After a loss: our row stands again where we know it stood."""
        lane = self._lanes[shard]
        await self._join(lane, lane.number if lane.epoch == self._standing.epoch else 0)

    async def _drain(self, lane: _Lane) -> None:
        try:
            while lane.queue:
                await self._commit_waiting(lane)
        finally:
            lane.busy = False

    async def _commit_waiting(self, lane: _Lane) -> None:
        """Never raises: each waiting write gets its result or its error."""
        items, lane.queue = lane.queue[:BATCH], lane.queue[BATCH:]
        try:
            results = await self._commit_batch(lane, tuple(write for write, _ in items))
        except BaseException as error:
            failure = error if isinstance(error, HerenowError) else Unavailable(f"commit failed: {error!r}")
            if not isinstance(error, Exception):
                lane.busy = False
            for _, answer in items:
                if not answer.done():
                    answer.set_exception(failure)
                    answer.exception()  # its reader may be gone: not worth a warning
            if not isinstance(error, Exception):
                raise
        else:
            for (_, answer), result in zip(items, results, strict=True):
                if not answer.done():
                    answer.set_result(result)

    async def _commit_batch(self, lane: _Lane, writes: tuple[Write, ...]) -> tuple[Written | Conflict, ...]:
        if lane.epoch != self._standing.epoch:
            await self._join(lane, 0)
        batch = Batch(lane.shard, lane.epoch, lane.number, lane.number + 1, writes)
        self._metrics.commits += 1
        try:
            result = await writing(self._engine.commit(batch))
        except UnknownOutcome:
            self._metrics.doubtful += 1
            await self._resolve(lane, batch)
            raise
        if isinstance(result, Fenced):
            self._on_loss(lane.shard, result.row)
            raise Unavailable(f"shard {lane.shard} does not know this node's last commits")
        lane.number = batch.next
        return result.results

    async def _join(self, lane: _Lane, number: int) -> None:
        epoch = self._standing.epoch
        await writing(self._engine.join(lane.shard, epoch, number))
        lane.epoch, lane.number = epoch, number

    async def _resolve(self, lane: _Lane, batch: Batch) -> None:
        """Bar the doubtful batch from running late, and learn whether the shard still has what we know of."""
        number = batch.next + 1
        while lane.epoch == self._standing.epoch:
            try:
                row = await reading(self._engine.jump(lane.shard, batch.epoch, number))
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(RETRY)
                continue
            lane.number = number
            if row is None or row < batch.last:
                self._on_loss(lane.shard, row)
            return
