"""One batch in flight per shard, and every unknown outcome is resolved."""

import asyncio
from itertools import islice

import pytest

from herenow.core.shards import shard_of
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.clock import NodeClock
from herenow.node import make_context
from herenow.node.records.record_events import RecordEvents
from herenow.node.records.writer import BATCH, Writer
from herenow.ports import Batch, Conflict, Fenced, Write, Written
from herenow_testing.contracts.engine import record, user_of, users_of
from herenow_testing.faults.faulty_engine import Fault, Faults, FaultyEngine, Rule
from herenow_testing.world.manual_clock import START
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


class Desk:
    """A writer with its store, lease and metrics."""

    def __init__(self, *, embedded=False):
        loop = asyncio.get_running_loop()
        self.store = MemoryStore(2)
        self.faults = Faults(seed=3, store=self.store)
        self.engine = FaultyEngine(MemoryEngine(self.store), self.faults, "n1")
        self.clock = NodeClock(START, monotonic=loop.time)
        settings = node_settings(embedded=embedded)
        self.context = make_context(self.engine, MemoryLedger(), settings, clock=self.clock)
        self.standing = self.context.authority
        self.standing.renewed = loop.time()
        self.tasks = self.context.tasks
        self.metrics = self.context.metrics
        self.losses = []
        events = RecordEvents()
        events.subscribe_store(self)
        self.writer = Writer(self.context, events)
        self.user = user_of(self.engine, 0)

    def on_loss(self, shard, row, asked=None):
        self.losses.append((shard, row))

    def on_writable(self, shard):
        """No session is held here."""

    def on_remote_change(self, person):
        raise AssertionError("a writer reads no records")

    async def write(self, expected, new, user=None):
        [result] = await self.write_all(Write(user or self.user, expected, new))
        return result

    async def write_all(self, *writes):
        return await self.writer.commit(0, writes, self.standing.epoch)

    def stored(self, user=None):
        return self.store.shards[0].records.get(user or self.user)

    @property
    def row(self):
        return self.store.shards[0].fences.get(self.standing.epoch)


@pytest.fixture
async def desk():
    desk = Desk()
    yield desk
    await desk.tasks.end()


def renew(desk):
    """As a lease renewal does every few seconds."""
    desk.standing.renewed = asyncio.get_running_loop().time()


async def test_a_write_to_the_store_succeeds_or_returns_the_conflicting_current_record(desk):
    renew(desk)
    assert await desk.write(None, record(1)) == Written()
    assert await desk.write(None, record(2)) == Conflict(record(1))
    assert await desk.write(record(1), record(2)) == Written()


async def test_writes_made_in_one_event_loop_iteration_are_sent_to_the_store_in_one_batch(desk):
    renew(desk)
    users = [user for user in (f"u{number}" for number in range(200)) if shard_of(user, 2) == 0]
    await asyncio.gather(*(desk.write(None, record(1), user) for user in users))
    assert len(users) > 50
    assert desk.metrics.commits == 1


async def test_a_write_to_the_embedded_store_starts_no_asyncio_task():
    desk = Desk(embedded=True)
    renew(desk)
    before = asyncio.all_tasks()
    assert await desk.write(None, record(1)) == Written()
    assert asyncio.all_tasks() == before
    assert await desk.write(None, record(2)) == Conflict(record(1))
    users = [user for user in (f"u{number}" for number in range(20)) if shard_of(user, 2) == 0]
    assert await asyncio.gather(*(desk.write(None, record(1), user) for user in users)) == [Written()] * len(users)
    assert desk.row == desk.metrics.commits
    await desk.tasks.end()


@pytest.mark.parametrize("fault", [Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE])
async def test_the_unknown_outcome_of_a_store_write_is_resolved_before_the_next_batch_is_sent(desk, fault):
    renew(desk)
    await desk.write(None, record(1))
    with desk.faults.during(Rule(fault, calls=("commit",), times=1, reach=50)):
        with pytest.raises(UnknownOutcome):
            await desk.write(record(1), record(2))
    found = desk.stored()
    assert found == (record(2) if fault is Fault.EXECUTED else record(1))
    assert await desk.write(found, record(3)) == Written()
    await desk.faults.run_late()
    assert desk.stored() == record(3)
    assert desk.losses == []


async def test_a_batch_that_reaches_the_store_after_its_timeout_changes_nothing(desk):
    renew(desk)
    await desk.write(None, record(1))
    with desk.faults.during(Rule(Fault.LATE, calls=("commit",), times=1, reach=50)):
        with pytest.raises(UnknownOutcome):
            await desk.write(record(1), record(2))
    await desk.faults.run_late()
    assert desk.stored() == record(1)


async def test_a_node_asks_for_the_outcome_of_an_unanswered_write_until_the_store_answers(desk):
    renew(desk)
    await desk.write(None, record(1))
    cut = desk.faults.on(Rule(Fault.SILENCE))
    doubtful = asyncio.ensure_future(desk.write(record(1), record(2)))
    await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(desk.write(record(1), record(3)))
    await asyncio.sleep(6)
    assert not doubtful.done()
    desk.faults.off(cut)
    renew(desk)
    with pytest.raises(UnknownOutcome):
        await doubtful
    assert await waiting == Written()


@pytest.mark.parametrize("lose", ["empty", "roll_back"])
async def test_a_store_shard_that_lost_writes_of_the_node_is_detected_by_the_next_write(desk, lose):
    renew(desk)
    await desk.write(None, record(1))
    desk.faults.remember(0)
    await desk.write(record(1), record(2))
    getattr(desk.faults, lose)(0)
    with pytest.raises(Unavailable):
        await desk.write(record(2), record(3))
    assert desk.losses == [(0, None if lose == "empty" else 1)]
    await desk.writer.rejoin(0)
    current = desk.stored()
    assert await desk.write(current, record(4)) == Written()


async def test_a_write_that_the_store_lost_is_detected_even_without_another_write(desk):
    renew(desk)
    await desk.write(None, record(1))
    desk.faults.remember(0)
    await desk.write(record(1), record(2))
    desk.faults.roll_back(0)
    await desk.writer.verify_recent()
    assert desk.losses == [(0, 1)]


async def test_store_shards_without_recent_writes_are_not_checked_for_lost_writes(desk):
    renew(desk)
    await desk.write(None, record(1))
    row = desk.row
    await asyncio.sleep(31)
    renew(desk)
    await desk.writer.verify_recent()
    assert desk.row == row


async def test_a_node_without_a_lease_writes_nothing_and_reports_no_data_loss(desk):
    renew(desk)
    await desk.write(None, record(1))
    await desk.engine.retire(0, desk.standing.epoch)
    await asyncio.sleep(7)
    with pytest.raises(Unavailable):
        await desk.write(record(1), record(2))
    assert desk.losses == []
    assert desk.stored() == record(1)


async def test_a_write_decided_under_an_old_run_id_of_a_node_is_not_sent_under_its_new_run_id(desk):
    renew(desk)
    old = desk.standing.epoch
    desk.standing.begin_epoch()
    renew(desk)
    with pytest.raises(Unavailable):
        await desk.writer.commit(0, (Write(desk.user, None, record(1)),), old)
    assert desk.stored() is None
    assert await desk.write(None, record(1)) == Written()


async def test_the_store_refuses_a_late_batch_under_a_retired_run_id_of_a_node(desk):
    renew(desk)
    await desk.write(None, record(1))
    old, row = desk.standing.epoch, desk.row
    await desk.engine.retire(0, old)
    late = Batch(0, old, row, row + 1, (Write(desk.user, record(1), record(9)),))
    assert await desk.engine.commit(late) == Fenced(None)


async def test_a_write_to_an_emptied_store_shard_reports_data_loss(desk):
    renew(desk)
    desk.store.empty(0)
    await desk.write(None, record(1))
    assert desk.losses == [(0, 1)]


async def test_writes_submitted_together_are_one_batch_and_are_answered_in_order(desk):
    others = list(islice(users_of(desk.engine, 0, "other-"), 3))
    await desk.write(None, record(1), others[1])
    batches, commit = [], desk.engine.commit

    async def noted(batch):
        batches.append([write.user for write in batch.writes])
        return await commit(batch)

    desk.engine.commit = noted
    together = desk.write_all(*[Write(user, None, record(2)) for user in others])
    alone = desk.write(None, record(3))
    answers, one = await asyncio.gather(together, alone)
    assert answers == (Written(), Conflict(record(1)), Written())
    assert one == Written()
    assert batches == [[*others, desk.user]]


async def test_a_group_of_writes_that_does_not_fit_into_a_batch_waits_for_the_next_batch(desk):
    sizes, commit = [], desk.engine.commit

    async def noted(batch):
        sizes.append(len(batch.writes))
        return await commit(batch)

    desk.engine.commit = noted
    users = list(islice(users_of(desk.engine, 0, "other-"), BATCH + 2))
    first, second = users[: BATCH - 1], users[BATCH - 1 :]
    await asyncio.gather(
        desk.write_all(*[Write(user, None, record(1)) for user in first]),
        desk.write_all(*[Write(user, None, record(1)) for user in second]),
    )
    assert sizes == [BATCH - 1, 3]
