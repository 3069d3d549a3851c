"""Sends this node's commits to the shards: in batches, one in flight per shard. Each has a number, and is refused unless
this node's fence row in the shard has the number of the batch before.

If a batch gets no answer, `jump` makes sure that it cannot run late:

    n1  commit(last=7, next=8) ──────────── no answer ────────────▶ (runs late, expects row 7) ✗ refused
    n1                          jump(9) ─▶ row was 7 or 8: now 9
    n1                                     commit(last=9, next=10) …

The records of the batch are read and decided again, so its outcome need not be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import DEADLINE, write_within
from herenow.node.context import Context
from herenow.node.records.record_events import RecordEvents
from herenow.ports import Batch, Conflict, Fenced, Write, Written

BATCH = 500  # writes per commit: a few milliseconds of work, so that a store can serve others in between
RETRY = 0.2  # seconds between two attempts to `jump` after a commit without an answer

VERIFY = 30.0
"""Seconds after a commit in which the shard is checked for it: a failover loses about the last ten seconds."""


T = TypeVar("T")
Results = tuple[Written | Conflict, ...]


@dataclass(slots=True, eq=False, repr=False)
class _Waiting:
    writes: tuple[Write, ...]
    epoch: str
    answer: asyncio.Future[Results]


@dataclass(slots=True, eq=False, repr=False)
class _Lane:
    """Queue of one shard, with the number of the last batch that was acknowledged or jumped over."""

    shard: int
    queue: list[_Waiting] = field(default_factory=list)
    draining: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one call in flight per shard
    epoch: str = ""
    number: int = 0
    committed_at: float = float("-inf")


class Writer:
    def __init__(self, context: Context, events: RecordEvents) -> None:
        self._engine = context.engine
        self._authority = context.authority
        self._clock = context.clock
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._events = events
        self._embedded = context.settings.engine_in_memory  # True: the store answers at once, so no queue builds up
        self._lanes = [_Lane(shard) for shard in range(context.engine.shards)]

    async def commit(self, shard: int, writes: tuple[Write, ...], epoch: str) -> Results:
        """Commit all writes to a shard in one batch, and return one result per write. `epoch`: the epoch under which
        they were decided; if this node has a newer one, they fail. Raises `Unavailable` (nothing happened; retry later)
        or `UnknownOutcome` (read, then decide again)."""
        lane = self._lanes[shard]
        answer: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        lane.queue.append(_Waiting(writes, epoch, answer))
        if not lane.draining:
            lane.draining = True
            if self._embedded:
                await self._drain(lane)  # a task would cost more than the commit
            else:
                self._tasks.spawn(self._drain(lane), f"writer-{shard}")
        return await answer

    async def rejoin(self, shard: int) -> None:
        """Write this node's fence row (the number of its last batch) in the shard again, with a number above every
        earlier one. Call after the records were given back to a shard that lost data. If the row is lower or missing
        later (`still_joined`), the shard has lost them again."""
        lane = self._lanes[shard]
        async with lane.turn:
            await self._join(lane, lane.number + 1 if lane.epoch == self._authority.epoch else 1)

    async def still_joined(self, shard: int) -> bool:
        lane = self._lanes[shard]
        async with lane.turn:
            if lane.epoch != self._authority.epoch:
                return False
            row = await write_within(self._engine.jump(shard, lane.epoch, lane.number))
            return row is not None and row >= lane.number

    async def verify(self, shard: int) -> None:
        """Check that the shard still has this node's commits, by an empty batch that is refused if some are lost.
        Raises `Unavailable` then, and also if the shard does not answer in time: a store that takes no writes would
        block the caller for long."""
        lane = self._lanes[shard]
        try:
            async with asyncio.timeout(DEADLINE):
                await lane.turn.acquire()
        except TimeoutError:
            raise Unavailable(f"shard {shard} has not answered an earlier commit yet") from None
        # A task, because the outcome of the batch must be resolved also if the caller is cancelled.
        asking = self._tasks.spawn(self._ask_whether_it_has(lane), f"verify-{shard}")
        await asyncio.wait([asking], timeout=2 * DEADLINE)
        if not asking.done():
            raise Unavailable(f"shard {shard} does not answer")
        if (failure := asking.result()) is not None:
            raise failure

    async def _ask_whether_it_has(self, lane: _Lane) -> HerenowError | None:
        """Commit an empty batch to the shard of `lane`; returns the error, None: accepted. The caller has acquired
        `lane.turn`; this releases it."""
        try:
            if lane.epoch == self._authority.epoch:
                await self._commit_batch(lane, ())
        except HerenowError as error:
            return error
        finally:
            lane.turn.release()
        return None

    async def probe(self, shard: int) -> None:
        """Commit an empty batch to a shard that could not be written, to find out whether it can be now. Raises
        `Unavailable` or `UnknownOutcome` if not."""
        lane = self._lanes[shard]
        if not lane.turn.locked():  # else a write is under way, and shows the same
            async with lane.turn:
                await self._commit_batch(lane, ())

    async def verify_recent(self) -> None:
        """Check every shard to which this node committed in the last `VERIFY` seconds (`verify`): a failover loses
        writes without an error."""
        since = self._clock.monotonic() - VERIFY
        for lane in self._lanes:
            if lane.committed_at > since and not lane.draining:
                try:
                    await self.verify(lane.shard)
                except (Unavailable, UnknownOutcome):
                    self._metrics.engine_errors += 1

    async def _drain(self, lane: _Lane) -> None:
        try:
            while lane.queue:
                async with lane.turn:
                    await self._commit_waiting(lane)
        finally:
            lane.draining = False
            _fail(lane.queue, Unavailable("the writer was cancelled"))
            lane.queue = []

    async def _commit_waiting(self, lane: _Lane) -> None:
        """Commit one batch from the queue of the shard, and give each waiting caller its results or the error."""
        items = _batch_of(lane)
        current = [item for item in items if item.epoch == self._authority.epoch]
        try:
            results = await self._commit_batch(lane, tuple([w for item in current for w in item.writes]))
        except HerenowError as error:
            _fail(items, error)
        except BaseException as error:
            _fail(items, UnknownOutcome(f"the commit was cancelled, its outcome is unknown: {error!r}"))
            raise
        else:
            lane.committed_at = self._clock.monotonic()
            start = 0
            for item in current:
                end = start + len(item.writes)
                if not item.answer.done():
                    item.answer.set_result(results[start:end])
                start = end
            _fail(items, Unavailable("computed under an epoch that has ended"))

    async def _commit_batch(self, lane: _Lane, writes: tuple[Write, ...]) -> Results:
        if not self._authority.holds_lease:
            raise Unavailable("this node does not hold its lease")
        if lane.epoch != self._authority.epoch:
            await self._join(lane, 0)
        batch = Batch(lane.shard, lane.epoch, lane.number, lane.number + 1, writes)
        self._metrics.commits += bool(writes)
        begin = self._clock.monotonic()
        try:
            result = await write_within(self._engine.commit(batch))
        except Unavailable:
            self._authority.outages.on_failure((lane.shard,))
            raise
        except UnknownOutcome:
            if self._clock.monotonic() - begin >= DEADLINE:  # otherwise only an answer was lost, perhaps
                self._authority.outages.on_failure((lane.shard,))
            self._metrics.doubtful += 1
            await self._resolve(lane, batch)
            raise
        if isinstance(result, Fenced):
            await self._refused(lane, result.row)
            raise Unavailable(f"shard {lane.shard} does not have this node's last commits")
        lane.number = batch.next
        if self._authority.outages.on_success(lane.shard):
            self._events.on_writable(lane.shard)
        if not result.settled:
            self._events.on_loss(lane.shard, batch.next)
        return result.results

    async def _join(self, lane: _Lane, number: int) -> None:
        epoch = self._authority.epoch
        await self._ask_in(lane.shard, epoch, number)
        lane.epoch, lane.number = epoch, number

    async def _ask_in(self, shard: int, epoch: str, number: int) -> None:
        if not await self._write(shard, self._engine.join(shard, epoch, number)):
            if epoch == self._authority.epoch:
                self._authority.retired = True  # `lease` begins a new epoch
            raise Unavailable(f"shard {shard} refuses this node, which was declared dead")

    async def _write(self, shard: int, call: Coroutine[Any, Any, T]) -> T:
        """Await a write to the shard and return its result; a failure begins an outage of the shard."""
        try:
            return await write_within(call)
        except (Unavailable, UnknownOutcome):
            self._authority.outages.on_failure((shard,))
            raise

    async def _resolve(self, lane: _Lane, batch: Batch) -> None:
        """Prevent a batch that got no answer from being applied later, by raising the batch number that the shard's
        fence has for this node (`jump`). The old number also shows whether the shard lost data."""
        number = batch.next + 1
        while batch.epoch == self._authority.epoch:
            try:
                row = await write_within(self._engine.jump(lane.shard, batch.epoch, number))
                lane.number = number
                if row is None or row < batch.last:
                    await self._refused(lane, row)
                return
            except (Unavailable, UnknownOutcome):
                self._authority.outages.on_failure((lane.shard,))
                await asyncio.sleep(RETRY)

    async def _refused(self, lane: _Lane, row: int | None) -> None:
        """Report data loss of the shard, because the batch number that its fence has for this node is lower than
        expected or missing (`row` None). If it is missing because this epoch was retired, nothing was lost: then
        `_ask_in` raises."""
        if not self._authority.holds_lease or lane.epoch != self._authority.epoch:
            return
        if row is None:
            await self._ask_in(lane.shard, lane.epoch, 0)
        self._events.on_loss(lane.shard, row)


def _batch_of(lane: _Lane) -> list[_Waiting]:
    count, size = 0, 0
    for item in lane.queue:
        if count and size + len(item.writes) > BATCH:
            break
        count, size = count + 1, size + len(item.writes)
    items, lane.queue = lane.queue[:count], lane.queue[count:]
    return items


def _fail(items: list[_Waiting], error: HerenowError) -> None:
    for item in items:
        if not item.answer.done():
            item.answer.set_exception(error)
            item.answer.exception()  # marks it as retrieved: its caller may be gone
