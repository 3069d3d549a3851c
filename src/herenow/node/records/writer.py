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
from dataclasses import dataclass, field

from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import DEADLINE, write_within
from herenow.node.context import Context
from herenow.node.records.record_events import RecordEvents
from herenow.ports import Batch, Conflict, Fenced, Write, Written

BATCH = 500
"""Writes per commit: what a store does in a few milliseconds, so that others get their turn."""

RETRY = 0.2
"""Seconds between two tries to resolve a doubt."""

VERIFY = 30.0
"""Seconds after a commit in which the shard is asked whether it still has it: a failover loses the last ten or so."""


Results = tuple[Written | Conflict, ...]


@dataclass(slots=True, eq=False, repr=False)
class _Waiting:
    """Writes that were decided together, of different users."""

    writes: tuple[Write, ...]
    epoch: str
    answer: asyncio.Future[Results]


@dataclass(slots=True, eq=False, repr=False)
class _Lane:
    """One shard: what waits, and the number of the last batch that was acknowledged or jumped over."""

    shard: int
    queue: list[_Waiting] = field(default_factory=list)
    draining: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One call in flight per shard."""
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
        self._embedded = context.settings.engine_in_memory
        """True: the store answers without waiting, so nothing would gather behind a batch."""
        self._lanes = [_Lane(shard) for shard in range(context.engine.shards)]

    async def commit(self, shard: int, writes: tuple[Write, ...], epoch: str) -> Results:
        """All in one batch. `epoch` is the one the writes were decided under: they are not taken under another. Raises
        `Unavailable` (nothing happened; try again later) or `UnknownOutcome` (read, then decide again)."""
        lane = self._lanes[shard]
        answer: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        lane.queue.append(_Waiting(writes, epoch, answer))
        if not lane.draining:
            lane.draining = True
            if self._embedded:
                await self._drain(lane)  # a task, a wait and a wake-up would take longer than the commit
            else:
                self._tasks.spawn(self._drain(lane), f"writer-{shard}")
        return await answer

    async def rejoin(self, shard: int) -> None:
        """After a loss: our row stands again, one further than it ever stood, so that it tells whether the shard still has
        what it was given until now."""
        lane = self._lanes[shard]
        async with lane.turn:
            await self._join(lane, lane.number + 1 if lane.epoch == self._authority.epoch else 1)

    async def still_joined(self, shard: int) -> bool:
        """Is our row where we know it stood?"""
        lane = self._lanes[shard]
        async with lane.turn:
            if lane.epoch != self._authority.epoch:
                return False
            row = await write_within(self._engine.jump(shard, lane.epoch, lane.number))
            return row is not None and row >= lane.number

    async def verify(self, shard: int) -> None:
        """Does the shard still have what it acknowledged? Raises `Unavailable` when it does not, or does not say within
        bounded time: who asks has other shards to look after, and a doubt may last as long as the store takes no writes."""
        lane = self._lanes[shard]
        try:
            async with asyncio.timeout(DEADLINE):
                await lane.turn.acquire()
        except TimeoutError:
            raise Unavailable(f"shard {shard} has not said yet what became of a commit") from None
        # A task, because what was sent must be followed up, whoever still waits for it.
        asking = self._tasks.spawn(self._ask_whether_it_has(lane), f"verify-{shard}")
        await asyncio.wait([asking], timeout=2 * DEADLINE)
        if not asking.done():
            raise Unavailable(f"shard {shard} does not say what it has")
        if (failure := asking.result()) is not None:
            raise failure

    async def _ask_whether_it_has(self, lane: _Lane) -> HerenowError | None:
        """In its turn, which ends with this."""
        try:
            if lane.epoch == self._authority.epoch:
                await self._commit_batch(lane, ())
        except HerenowError as error:
            return error
        finally:
            lane.turn.release()
        return None

    async def probe(self, shard: int) -> None:
        """Write an empty batch to a shard that could not be written. Raises `Unavailable` or `UnknownOutcome`."""
        lane = self._lanes[shard]
        if not lane.turn.locked():  # else a write is under way, and shows the same
            async with lane.turn:
                await self._commit_batch(lane, ())

    async def verify_recent(self) -> None:
        """All shards to which something was committed a short while ago: a failover loses writes without a word."""
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
            _fail(lane.queue, Unavailable("the writer was given up"))
            lane.queue = []

    async def _commit_waiting(self, lane: _Lane) -> None:
        """Each waiting write gets its result or its error."""
        items = _batch_of(lane)
        current = [item for item in items if item.epoch == self._authority.epoch]
        try:
            results = await self._commit_batch(lane, tuple([w for item in current for w in item.writes]))
        except HerenowError as error:
            _fail(items, error)
        except BaseException as error:
            _fail(items, UnknownOutcome(f"the commit was given up: {error!r}"))
            raise
        else:
            lane.committed_at = self._clock.monotonic()
            start = 0
            for item in current:
                end = start + len(item.writes)
                if not item.answer.done():
                    item.answer.set_result(results[start:end])
                start = end
            _fail(items, Unavailable("decided under an epoch that has ended"))

    async def _commit_batch(self, lane: _Lane, writes: tuple[Write, ...]) -> Results:
        if not self._authority.holds_lease:
            raise Unavailable("this node's lease is in doubt")
        if lane.epoch != self._authority.epoch:
            await self._join(lane, 0)
        batch = Batch(lane.shard, lane.epoch, lane.number, lane.number + 1, writes)
        self._metrics.commits += bool(writes)
        try:
            result = await write_within(self._engine.commit(batch))
        except Unavailable:
            self._authority.outages.on_failure(lane.shard)
            raise
        except UnknownOutcome:
            self._authority.outages.on_failure(lane.shard)
            self._metrics.doubtful += 1
            await self._resolve(lane, batch)
            raise
        if isinstance(result, Fenced):
            await self._refused(lane, result.row)
            raise Unavailable(f"shard {lane.shard} does not know this node's last commits")
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
        if not await write_within(self._engine.join(shard, epoch, number)):
            if epoch == self._authority.epoch:
                self._authority.retired = True  # `lease` begins a new one
            raise Unavailable(f"this node's epoch was ended in shard {shard}")

    async def _resolve(self, lane: _Lane, batch: Batch) -> None:
        """Bar the doubtful batch from running late, and learn whether the shard still has what we know of."""
        number = batch.next + 1
        while batch.epoch == self._authority.epoch:
            try:
                row = await write_within(self._engine.jump(lane.shard, batch.epoch, number))
                lane.number = number
                if row is None or row < batch.last:
                    await self._refused(lane, row)
                return
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(RETRY)

    async def _refused(self, lane: _Lane, row: int | None) -> None:
        """The shard lost our writes; or we lost our lease and were retired, which is for `lease` to find out, or for the
        shard to say: then nothing is lost."""
        if not self._authority.holds_lease or lane.epoch != self._authority.epoch:
            return
        if row is None:
            await self._ask_in(lane.shard, lane.epoch, 0)
        self._events.on_loss(lane.shard, row)


def _batch_of(lane: _Lane) -> list[_Waiting]:
    """What waits, in order, as much of it as a batch should hold."""
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
            item.answer.exception()  # its reader may be gone: not worth a warning
