"""The memory engine keeps the promises of the port, directly and through a transparent wrapper."""

import asyncio
import time
from contextlib import asynccontextmanager
from itertools import islice

import pytest

from herenow.core.shards import shard_of
from herenow.engines import ENGINES, make_engine
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.engines.memory.shard import WASTE
from herenow.errors import ConfigurationError
from herenow.ports import Engine, Lease, Loaded, LogPart, LogPosition, Offer, Write
from herenow_testing.contracts.engine import (
    NOW,
    TERMS,
    EngineContract,
    due_in,
    head_of,
    joined,
    record,
    settled,
    stored,
    user_of,
    users_of,
    walked,
)
from herenow_testing.faults.faulty_engine import Fault, Faults, FaultyEngine, Rule
from herenow_testing.world.manual_clock import ManualClock


@pytest.mark.looptime
class TestMemory(EngineContract):
    shards = 16

    @pytest.fixture
    async def engine(self):
        self.store = MemoryStore(self.shards, clock=ManualClock().now)
        return await opened(self.handle("n1"))

    @pytest.fixture
    async def second(self, engine):
        return await opened(self.handle("n2"))

    def handle(self, node):
        return MemoryEngine(self.store)

    async def empty(self, shard):
        self.store.empty(shard)

    async def snapshot(self, shard):
        return self.store.snapshot(shard)

    async def roll_back(self, shard, snapshot):
        self.store.restore(shard, snapshot)

    async def trim_log(self, shard, keep):
        self.store.trim_log(shard, keep)


@pytest.mark.looptime
class TestMemoryWithOneShard(TestMemory):
    shards = 1


@pytest.mark.looptime
class TestMemoryThroughAWrapperWithoutFaults(TestMemory):
    @pytest.fixture(autouse=True)
    def no_faults_but_the_cut(self):
        self.faults = Faults()
        yield
        assert set(self.faults.taken) <= {Fault.SILENCE}

    def handle(self, node):
        return FaultyEngine(MemoryEngine(self.store), self.faults, node)

    @asynccontextmanager
    async def cut_off(self):
        with self.faults.during(Rule(Fault.SILENCE, node="n1")):
            yield


async def opened(engine: Engine) -> Engine:
    await engine.open(TERMS)
    return engine


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
async def engine(store):
    return await opened(MemoryEngine(store))


# Properties of the memory engine alone


async def test_a_new_memory_store_needs_no_recovery_and_its_logs_begin_at_zero(engine):
    assert await engine.load(["ana"]) == [Loaded(None, settled=True)]
    assert set((await engine.heads()).values()) == {0}


async def test_the_memory_store_reads_its_clock_only_when_asked_for_the_time():
    reads = []

    def clock():
        reads.append(1)
        return 42

    engine = await opened(MemoryEngine(MemoryStore(clock=clock)))
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1), wake_at=5, note=b"n", unsaved=True))
    await due_in(engine, 0, 5, 10)
    await engine.unsettle(0, NOW)
    await engine.settle(0, NOW, 0)
    await engine.renew(Lease("e", 1, NOW), begins=True)
    assert not reads
    assert await engine.store_time() == 42


async def test_the_time_of_the_memory_store_is_the_wall_clock_by_default(engine):
    before = time.time()
    assert before - 1 <= await engine.store_time() / 1000 <= time.time() + 1


async def test_a_full_shard_log_keeps_the_latest_entries_and_a_reader_learns_that_older_ones_are_missing():
    engine = await opened(MemoryEngine(MemoryStore(log_limit=3)))
    node = await joined(engine)
    await node.write(*[Write(user, None, record(1), note=b"n") for user in islice(users_of(engine, 0), 5)])
    (part,) = await engine.tail({0: 0}, 0)
    assert ([entry.number for entry in part.entries], part.head, part.gap) == ([3, 4, 5], 5, True)
    (part,) = await engine.tail({0: 2}, 0)
    assert not part.gap


async def test_an_unread_message_inbox_of_a_node_drops_its_oldest_messages(store):
    engine = await opened(MemoryEngine(store, inbox_limit=2))
    for message in (b"1", b"2", b"3"):
        await engine.send(message)
    assert await engine.receive(0) == [b"2", b"3"]


async def test_a_node_receives_messages_from_the_memory_store_only_while_its_connection_is_open(store, engine):
    late = MemoryEngine(store)
    await engine.send(b"before")
    await opened(late)
    await engine.send(b"while")
    await late.close()
    await late.close()
    await engine.send(b"after")
    assert await late.receive(0) == [b"while"]


async def test_opening_a_connection_to_the_memory_store_twice_does_not_deliver_messages_twice(engine):
    await engine.open(TERMS)
    await engine.send(b"one")
    assert await engine.receive(0) == [b"one"]


# Data loss


async def test_emptying_a_memory_store_removes_records_node_leases_and_stored_settings(store, engine):
    node = await joined(engine, 3)
    await node.write(Write(user_of(engine, 3), None, record(1), wake_at=5, note=b"n", unsaved=True))
    await engine.renew(Lease(node.epoch, 1, NOW), begins=True)
    store.empty()
    assert not await engine.renew(Lease(node.epoch, 2, NOW))
    assert await engine.leases() == []
    assert await engine.load([user_of(engine, 3)]) == [Loaded(None, settled=False)]
    assert await walked(engine, 3, 10) == await engine.unsaved(3, 10) == []
    assert (await due_in(engine, 3, 10, 10)).users == ()
    assert await engine.jump(3, node.epoch, 9) is None
    await engine.open({**TERMS, "grace": "another"})


async def test_emptying_one_shard_of_a_memory_store_keeps_other_shards_and_node_leases(store, engine):
    await (await joined(engine, 3)).write(Write(user_of(engine, 3), None, record(1)))
    await engine.renew(Lease("epoch", 1, NOW), begins=True)
    store.empty(4)
    assert await stored(engine, user_of(engine, 3)) == record(1)
    assert await engine.renew(Lease("epoch", 2, NOW))


async def test_a_snapshot_of_a_shard_can_be_restored_repeatedly_and_later_writes_do_not_change_it(store, engine):
    user = user_of(engine, 0)
    node = await joined(engine)
    await node.write(Write(user, None, record(1), wake_at=5, note=b"n", unsaved=True))
    past = store.snapshot(0)
    for _ in range(2):
        await engine.join(0, node.epoch, 50)
        node.last = 50
        await node.write(Write(user, record(1), None, note=b"n"))
        store.restore(0, past)
        assert await stored(engine, user) == record(1)
        assert (await due_in(engine, 0, 5, 10)).users == (user,)
        assert await engine.unsaved(0, 10) == [(user, record(1))]
        assert await head_of(engine) == 1
        assert await engine.jump(0, node.epoch, 1) == 1


async def test_a_snapshot_of_a_whole_memory_store_contains_node_leases_and_stored_settings(store, engine):
    await engine.renew(Lease("epoch", 1, NOW), begins=True)
    past = store.snapshot()
    await engine.renew(Lease("epoch", 2, NOW))
    await engine.open({"novelty": "1"})
    store.restore(None, past)
    assert await engine.leases() == [Lease("epoch", 1, NOW)]
    await engine.open({"novelty": "2"})


async def test_listing_a_shard_in_pages_returns_every_record_even_if_the_shard_is_restored_midway(store, engine):
    users = list(islice(users_of(engine, 0), 30))
    node = await joined(engine)
    await node.write(*[Write(user, None, record(1)) for user in users])
    past = store.snapshot(0)
    await node.write(*[Write(user, record(1), None) for user in users[:20]])
    await node.write(*[Write(user, None, record(1)) for user in users[:20]])
    page = await engine.walk(0, None, 15)
    seen = {user for user, _ in page.records}
    store.restore(0, past)
    while page.cursor is not None:
        page = await engine.walk(0, page.cursor, 15)
        seen |= {user for user, _ in page.records}
    assert seen == set(users)


async def test_the_log_of_a_shard_put_into_recovery_continues_above_all_earlier_entry_numbers(store, engine):
    await settled(engine)
    await engine.unsettle(0, NOW)
    assert await engine.tail({0: 10_000}, 0) == [LogPart(0, (), LogPosition(NOW, ""), gap=True)]
    await engine.settle(0, NOW + 5_000, 5_000)
    await engine.unsettle(0, NOW - 60_000)
    assert await head_of(engine) == NOW + 1


@pytest.mark.looptime
async def test_putting_a_shard_into_recovery_wakes_readers_that_wait_for_its_log(engine):
    waiting = asyncio.create_task(engine.tail(await engine.heads(), 60))
    await asyncio.sleep(1)
    await engine.unsettle(5, NOW)
    (part,) = await waiting
    assert (part.shard, part.gap) == (5, True)
    assert asyncio.get_running_loop().time() == 1


# Bounded memory


async def test_moving_the_wake_up_time_of_a_user_repeatedly_uses_no_more_memory(store, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1), wake_at=0))
    for few in range(20):
        await node.write(*[Write(user, record(1), record(1), wake_at=few * 1000 + at) for at in range(1000)])
    assert len(store.shards[0].wakes._heap) <= WASTE + 3
    assert await due_in(engine, 0, 10**9, 10) == await due_in(engine, 0, 19_999, 10)


async def test_adding_and_removing_users_of_a_memory_store_repeatedly_uses_no_more_memory(store, engine):
    node = await joined(engine)
    few = list(islice(users_of(engine, 0), 100))
    for _ in range(50):
        await node.write(*[Write(user, None, record(1), wake_at=9, unsaved=True) for user in few])
        await node.write(*[Write(user, record(1), None) for user in few])
    assert len(store.shards[0].arrivals) <= 2 * len(few) + WASTE
    assert not store.shards[0].marks


async def test_restoring_and_dropping_a_record_of_a_memory_store_repeatedly_uses_no_more_memory(store, engine):
    user = user_of(engine, 0)
    await engine.unsettle(0, NOW)
    for _ in range(2 * WASTE):
        await engine.offer(0, [Offer(user, 1, record(1), 9, unsaved=True)])
        await engine.saved(0, [(user, record(1), True)])
    assert len(store.shards[0].arrivals) <= WASTE + 2
    assert len(store.shards[0].wakes._heap) <= WASTE + 2


@pytest.mark.looptime
async def test_a_burst_of_writes_wakes_a_waiting_log_reader_once_and_starts_no_tasks(engine, monkeypatch):
    looks, look = [], engine._new_parts

    def counted(cursors):
        looks.append(cursors)
        return look(cursors)

    monkeypatch.setattr(engine, "_new_parts", counted)
    waiting = asyncio.create_task(engine.tail(await engine.heads(), 60))
    await asyncio.sleep(1)
    node = await joined(engine)
    tasks = len(asyncio.all_tasks())
    for user in islice(users_of(engine, 0), 100):
        await node.write(Write(user, None, record(1), note=b"n"))
    assert len(asyncio.all_tasks()) == tasks
    assert len((await waiting)[0].entries) == 100
    assert len(looks) == 2, "once when it began to wait, once for all commits"


@pytest.mark.looptime
async def test_a_reader_that_waits_for_an_idle_memory_store_uses_no_cpu(engine, looptime):
    heads = await engine.heads()
    assert await engine.tail(heads, 3600) == []
    assert looptime == 3600
    assert await engine.receive(3600) == []
    assert looptime == 7200
    assert not engine._store.news._waiting


# Choosing an engine


def test_the_shard_of_a_user_is_the_crc32_of_the_utf8_bytes_of_the_id():
    assert shard_of("123456789", 2**32) == 0xCBF43926, "the check value of CRC-32"
    assert shard_of("123456789", 16) == 6
    assert shard_of("Zoë", 16) != shard_of("Zoe", 16)
    assert shard_of("anybody", 1) == 0


async def test_make_engine_creates_a_separate_memory_store_for_each_memory_url():
    engine = make_engine("memory://", shards=4, clock=lambda: 7)
    assert engine.shards == 4
    assert await engine.store_time() == 7
    other = make_engine("memory:///")
    await (await joined(engine)).write(Write(user_of(engine, 0), None, record(1)))
    assert await stored(other, user_of(engine, 0)) is None, "each one has its own store"


@pytest.mark.parametrize("url", ["nats://localhost", "memory", "", "://", "Memory://"])
def test_a_live_store_url_with_an_unknown_scheme_is_refused_and_the_known_schemes_are_listed(url):
    with pytest.raises(ConfigurationError, match="memory://") as refused:
        make_engine(url)
    assert repr(url) in str(refused.value)
    assert all(f"{scheme}://" in str(refused.value) for scheme in ENGINES)


def test_the_error_about_a_wrong_live_store_url_does_not_show_its_password():
    with pytest.raises(ConfigurationError) as refused:
        make_engine("nats://user:hunter2@host:4222/0")
    assert "hunter2" not in str(refused.value)
    assert "host:4222" in str(refused.value)


def test_a_memory_url_that_names_a_host_is_refused():
    with pytest.raises(ConfigurationError, match="memory://somewhere"):
        make_engine("memory://somewhere")
