"""The contract suite for engines.

Each test names the promise of `herenow.ports` (P1 to P8) that it checks. Run the suite against your engine:

    class TestMyEngine(EngineContract):
        @pytest_asyncio.fixture
        async def engine(self): ...       # a handle, opened with TERMS, on a new store
        @pytest_asyncio.fixture
        async def second(self, engine): ...   # another handle on the same store

If the store can be made to lose data, also override the hooks `empty`, `snapshot`, `roll_back`, `trim_log` and `cut_off`;
tests that need a missing hook are skipped. For readable failures call
`pytest.register_assert_rewrite("herenow_testing.contracts")` in your `conftest.py`.

The suite uses only the port. Times are plain numbers, because no promise may depend on a real clock (P7). Records are the
first eight bytes of a real record (format, flags, version) plus some content, because an engine may read the version there.
"""
# ruff: noqa: N802 - names begin with the promise they check

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count, islice
from secrets import token_urlsafe

import pytest
import pytest_asyncio

from herenow.core.shards import shard_of
from herenow.errors import ConfigurationError, Unavailable, UnknownOutcome
from herenow.ports import (
    LOG_BYTES,
    Batch,
    Committed,
    Conflict,
    Due,
    Engine,
    Entry,
    Fenced,
    Lease,
    Loaded,
    LogPart,
    LogPosition,
    Offer,
    Write,
    Written,
)

TERMS = {"ledger": "8f14e45f", "shards": "16", "grace": "30000"}
"""The terms with which the fixtures must open their handles."""

NOW = 1_700_000_000_000
PATIENCE = 5.0
"""Seconds within which a waiting reader must be woken. Only a failing test takes that long."""
A_MOMENT = 0.02
"""Seconds to wait when nothing is expected."""


def record(version: int, content: bytes = b"") -> bytes:
    return b"\x01\x00" + version.to_bytes(6, "big") + content


def users_of(engine: Engine, shard: int, prefix: str = "user-") -> Iterator[str]:
    """Yield user ids that belong to a shard, without end, and the same ones on every call."""
    every = (f"{prefix}{number}" for number in count())
    return (user for user in every if shard_of(user, engine.shards) == shard)


def user_of(engine: Engine, shard: int, prefix: str = "user-") -> str:
    return next(users_of(engine, shard, prefix))


def new_epoch() -> str:
    return token_urlsafe(6)


@dataclass
class Writer:
    """A node as a shard sees it: an epoch and the number of its last acknowledged batch."""

    engine: Engine
    shard: int
    epoch: str
    last: int = 0

    def batch(self, *writes: Write) -> Batch:
        return Batch(self.shard, self.epoch, self.last, self.last + 1, writes)

    async def commit(self, *writes: Write) -> Committed:
        answer = await self.engine.commit(self.batch(*writes))
        assert isinstance(answer, Committed)
        self.last += 1
        return answer

    async def write(self, *writes: Write) -> None:
        answer = await self.commit(*writes)
        assert answer.results == (Written(),) * len(writes)


async def joined(engine: Engine, shard: int = 0) -> Writer:
    writer = Writer(engine, shard, new_epoch())
    await engine.join(shard, writer.epoch, 0)
    return writer


async def stored(engine: Engine, user: str) -> bytes | None:
    return (await engine.load([user]))[0].record


async def is_settled(engine: Engine, shard: int) -> bool:
    return (await engine.load([user_of(engine, shard)]))[0].settled


async def settled(engine: Engine, shard: int = 0) -> None:
    """Bring a shard into the settled state (not in recovery), whatever its state was."""
    if not await engine.settle(shard, NOW, 0):
        assert await engine.settle(shard, NOW, 0)


async def log_after(engine: Engine, shard: int, cursor: int) -> LogPart | None:
    parts = await engine.tail({shard: cursor}, 0)
    assert len(parts) <= 1
    return parts[0] if parts else None


async def head_of(engine: Engine, shard: int = 0) -> int:
    return (await engine.heads())[shard]


async def due_in(engine: Engine, shard: int, now: int, limit: int) -> Due:
    found = await engine.due([shard], now, limit)
    assert set(found) == {shard}
    return found[shard]


async def walked(engine: Engine, shard: int, limit: int) -> list[tuple[str, bytes]]:
    page = await engine.walk(shard, None, limit)
    found = list(page.records)
    while page.cursor is not None:
        page = await engine.walk(shard, page.cursor, limit)
        found += page.records
    return found


async def received(engine: Engine, messages: int) -> list[bytes]:
    """Receive messages of other nodes until there are `messages` of them, in one call or several, and return them."""
    found: list[bytes] = []
    while len(found) < messages:
        news = await engine.receive(PATIENCE)
        assert news, f"only {found} arrived"
        found += news
    return found


@pytest.mark.asyncio
class EngineContract:
    """Derive a class named Test…, and override the two fixtures and the hooks that the store supports."""

    @pytest_asyncio.fixture
    async def engine(self) -> Engine:
        raise NotImplementedError("the fixture `engine` gives a handle, opened with TERMS, on a fresh store")

    @pytest_asyncio.fixture
    async def second(self, engine: Engine) -> Engine:
        raise NotImplementedError("the fixture `second` gives another handle on the store of `engine`")

    # Hooks for faults

    async def empty(self, shard: int) -> None:
        pytest.skip("no way to empty a shard")

    async def snapshot(self, shard: int) -> object:
        pytest.skip("no way to roll a shard back")

    async def roll_back(self, shard: int, snapshot: object) -> None:
        pytest.skip("no way to roll a shard back")

    async def trim_log(self, shard: int, keep: int) -> None:
        pytest.skip("no way to trim a log")

    def cut_off(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager in which the fixture `engine` cannot reach its store, and its calls soon raise."""
        pytest.skip("no way to cut the engine off")

    # P1: compare and set

    async def test_P1_a_new_store_has_no_records(self, engine: Engine) -> None:
        assert await stored(engine, "ana") is None

    async def test_P1_a_commit_replaces_a_record_that_matches_the_expected_bytes(
        self, engine: Engine, second: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        await node.write(Write(user, record(1), record(2)))
        assert await stored(engine, user) == record(2)
        assert await stored(second, user) == record(2)

    async def test_P1_a_commit_with_wrong_expected_bytes_returns_the_current_record(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(2)))
        answer = await node.commit(Write(user, record(1), record(3)))
        assert answer.results == (Conflict(record(2)),)
        assert await stored(engine, user) == record(2)

    async def test_P1_a_commit_conflicts_if_only_the_content_differs_from_the_expected_bytes(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(2, b"mine")))
        answer = await node.commit(Write(user, record(2, b"yours"), record(3)))
        assert answer.results == (Conflict(record(2, b"mine")),)

    async def test_P1_a_commit_that_expects_no_record_conflicts_with_an_existing_record(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        answer = await node.commit(Write(user, None, record(2)))
        assert answer.results == (Conflict(record(1)),)

    async def test_P1_a_commit_that_expects_a_record_conflicts_if_there_is_none(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        answer = await node.commit(Write(user, record(1), record(2)))
        assert answer.results == (Conflict(None),)
        assert await stored(engine, user) is None

    async def test_P1_removing_a_record_with_wrong_expected_bytes_is_a_conflict(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(2)))
        answer = await node.commit(Write(user, record(1), None))
        assert answer.results == (Conflict(record(2)),)
        await node.write(Write(user, record(2), None))
        assert await stored(engine, user) is None

    async def test_P1_a_removed_record_can_be_written_again(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)), Write(user, record(1), None), Write(user, None, record(3)))
        assert await stored(engine, user) == record(3)

    async def test_P1_a_conflict_in_a_batch_does_not_stop_the_other_writes(self, engine: Engine) -> None:
        node = await joined(engine)
        a, b, c = islice(users_of(engine, 0), 3)
        await node.write(Write(b, None, record(7)))
        answer = await node.commit(Write(a, None, record(1)), Write(b, None, record(2)), Write(c, None, record(3)))
        assert answer.results == (Written(), Conflict(record(7)), Written())
        assert [found.record for found in await engine.load([a, b, c])] == [record(1), record(7), record(3)]

    async def test_P1_a_second_write_for_a_user_in_a_batch_sees_the_first_write(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        answer = await node.commit(
            Write(user, None, record(1)), Write(user, None, record(9)), Write(user, record(1), record(2))
        )
        assert answer.results == (Written(), Conflict(record(1)), Written())
        assert await stored(engine, user) == record(2)

    async def test_P1_only_one_of_two_nodes_can_write_over_the_same_bytes_of_a_record(
        self, engine: Engine, second: Engine
    ) -> None:
        one, other, user = await joined(engine), await joined(second), user_of(engine, 0)
        answers = await asyncio.gather(
            one.commit(Write(user, None, record(1, b"one"))), other.commit(Write(user, None, record(1, b"other")))
        )
        results = [answer.results[0] for answer in answers]
        assert results.count(Written()) == 1
        assert Conflict(await stored(engine, user)) in results

    async def test_P1_load_returns_records_in_the_order_of_the_request_with_duplicates(self, engine: Engine) -> None:
        asked = [user_of(engine, shard) for shard in range(engine.shards)]
        for shard, user in enumerate(asked):
            await (await joined(engine, shard)).write(Write(user, None, record(shard + 1)))
        asked = [*reversed(asked), "stranger", asked[0], asked[0]]
        versions = [*range(engine.shards, 0, -1), None, 1, 1]
        found = [loaded.record for loaded in await engine.load(asked)]
        assert found == [None if version is None else record(version) for version in versions]
        assert await engine.load([]) == []

    @pytest.mark.parametrize(
        "user",
        ["Zoë", "渡辺", "👩‍🚀", "a:b/c{d}e*", "01", "%2F", '"', "\\", "x" * 128, "é" * 64, "😀" * 32],
        ids=["latin", "kanji", "joined", "marks", "zero", "percent", "quote", "slash", "128a", "128b", "128c"],
    )
    async def test_P1_every_valid_user_id_has_its_own_record(self, engine: Engine, user: str) -> None:
        node = await joined(engine, shard_of(user, engine.shards))
        await node.write(Write(user, None, record(1), wake_at=5, note=b"n", unsaved=True))
        assert await stored(engine, user) == record(1)
        assert await stored(engine, user + "x") is None
        assert (await due_in(engine, node.shard, 5, 10)).users == (user,)
        assert await engine.unsaved(node.shard, 10) == [(user, record(1))]
        assert await walked(engine, node.shard, 10) == [(user, record(1))]

    async def test_P1_similar_ids_belong_to_different_users(self, engine: Engine) -> None:
        alike = ["1", "01", "ana", "Ana", "1.0", "1e0"]
        for number, user in enumerate(alike, 1):
            await (await joined(engine, shard_of(user, engine.shards))).write(Write(user, None, record(number)))
        assert [found.record for found in await engine.load(alike)] == [record(n) for n in range(1, 7)]

    async def test_P1_a_record_can_contain_any_bytes_of_any_length(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        long = record(1, bytes(range(256)) * 40)
        await node.write(Write(user, None, long, note=bytes(range(256))))
        await node.write(Write(user, long, record(2, b"\r\n\x00"), note=b""))
        assert await stored(engine, user) == record(2, b"\r\n\x00")

    async def test_P1_a_batch_can_contain_a_thousand_writes(self, engine: Engine) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 1000))
        head = await head_of(engine)
        await node.write(*[Write(user, None, record(1), wake_at=9, note=b"n", unsaved=True) for user in users])
        assert {found.record for found in await engine.load(users)} == {record(1)}
        assert sorted((await due_in(engine, 0, 9, 2000)).users) == sorted(users)
        assert await head_of(engine) == head + 1000
        part = await log_after(engine, 0, head)
        assert part is not None
        assert [entry.user for entry in part.entries] == users

    # P2: record, wake-up, log entry and unsaved flag are written atomically

    async def test_P2_one_commit_writes_record_timer_log_entry_and_unsaved_flag(self, engine: Engine) -> None:
        node, user, head = await joined(engine), user_of(engine, 0), await head_of(engine)
        await node.write(Write(user, None, record(1), wake_at=100, note=b"note", unsaved=True))
        assert await stored(engine, user) == record(1)
        assert await due_in(engine, 0, 100, 10) == Due((user,), None)
        assert await log_after(engine, 0, head) == LogPart(
            0, (Entry(head + 1, user, record(1), b"note"),), LogPosition(head + 1, ""), gap=False
        )
        assert await engine.unsaved(0, 10) == [(user, record(1))]

    async def test_P2_a_write_that_conflicts_changes_neither_the_timer_nor_the_log_nor_the_unsaved_flag(
        self, engine: Engine
    ) -> None:
        node = await joined(engine)
        marked, plain = islice(users_of(engine, 0), 2)
        await node.write(Write(marked, None, record(1), wake_at=100, unsaved=True), Write(plain, None, record(1)))
        head = await head_of(engine)
        await node.commit(
            Write(marked, record(9), record(2), wake_at=50, note=b"n"),
            Write(plain, record(9), record(2), wake_at=60, note=b"n", unsaved=True),
        )
        assert await due_in(engine, 0, 1000, 10) == Due((marked,), None)
        assert await head_of(engine) == head
        assert await engine.unsaved(0, 10) == [(marked, record(1))]

    async def test_P2_a_write_without_a_note_for_the_log_adds_no_log_entry(self, engine: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        await node.write(Write(user_of(engine, 0), None, record(1)))
        assert await head_of(engine) == head
        assert await log_after(engine, 0, head) is None

    async def test_P2_a_write_with_an_empty_note_for_the_log_adds_a_log_entry(self, engine: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        await node.write(Write(user_of(engine, 0), None, record(1), note=b""))
        part = await log_after(engine, 0, head)
        assert part is not None
        assert [entry.note for entry in part.entries] == [b""]

    async def test_P2_every_write_replaces_the_timer_of_its_record(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100))
        await node.write(Write(user, record(1), record(2), wake_at=300))
        assert await due_in(engine, 0, 299, 10) == Due((), 300)
        await node.write(Write(user, record(2), record(3)))
        assert await due_in(engine, 0, 1000, 10) == Due((), None)

    async def test_P2_a_write_without_the_unsaved_flag_does_not_clear_the_flag_of_the_record(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), unsaved=True))
        await node.write(Write(user, record(1), record(2)))
        assert await engine.unsaved(0, 10) == [(user, record(2))]

    async def test_P2_removing_a_record_removes_its_timer_and_unsaved_flag(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100, unsaved=True))
        head = await head_of(engine)
        await node.write(Write(user, record(1), None, note=b"gone"))
        assert await due_in(engine, 0, 1000, 10) == Due((), None)
        assert await engine.unsaved(0, 10) == []
        assert await walked(engine, 0, 10) == []
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.entries == (Entry(head + 1, user, None, b"gone"),)

    async def test_P2_removing_a_record_can_set_a_timer_but_not_the_unsaved_flag(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), unsaved=True))
        await node.write(Write(user, record(1), None, wake_at=100, unsaved=True))
        assert (await due_in(engine, 0, 100, 10)).users == (user,)
        assert await engine.unsaved(0, 10) == []

    async def test_P2_a_rollback_of_a_shard_undoes_all_parts_of_a_commit_together(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100, note=b"1"))
        head, past = await head_of(engine), await self.snapshot(0)
        await node.write(Write(user, record(1), record(2), wake_at=200, note=b"2", unsaved=True))
        await self.roll_back(0, past)
        assert await stored(engine, user) == record(1)
        assert (await due_in(engine, 0, 100, 10)).users == (user,)
        assert await engine.unsaved(0, 10) == []
        assert await head_of(engine) == head
        assert await engine.commit(node.batch()) == Fenced(node.last - 1)

    # P3: fences

    @pytest.mark.parametrize("wrong", [-1, 1, 2])
    async def test_P3_a_batch_with_a_wrong_fencing_number_changes_nothing(self, engine: Engine, wrong: int) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100))
        before = await _everything(engine)
        batch = Batch(
            0, node.epoch, node.last + wrong, node.last + 5, (Write(user, record(1), record(2), 5, b"n", unsaved=True),)
        )
        assert await engine.commit(batch) == Fenced(node.last)
        assert await _everything(engine) == before
        await node.write(Write(user, record(1), record(3)))

    async def test_P3_a_batch_of_a_node_that_has_not_joined_the_shard_changes_nothing(self, engine: Engine) -> None:
        before, user = await _everything(engine), user_of(engine, 0)
        batch = Batch(0, new_epoch(), 0, 1, (Write(user, None, record(1), 5, b"n", unsaved=True),))
        assert await engine.commit(batch) == Fenced(None)
        assert await _everything(engine) == before

    async def test_P3_a_batch_that_is_sent_twice_is_applied_once(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        batch = node.batch(Write(user, None, record(1), note=b"n"))
        assert isinstance(await engine.commit(batch), Committed)
        head = await head_of(engine)
        assert await engine.commit(batch) == Fenced(1)
        assert await head_of(engine) == head

    async def test_P3_a_fencing_number_belongs_to_one_run_of_a_node_and_one_shard(
        self, engine: Engine, second: Engine
    ) -> None:
        if engine.shards < 2:
            pytest.skip("one shard")
        node, other = await joined(engine, 0), await joined(second, 0)
        await node.commit()
        await other.commit()
        assert await engine.commit(Batch(1, node.epoch, 0, 1, ())) == Fenced(None)
        await engine.join(1, node.epoch, 0)
        assert isinstance(await engine.commit(Batch(1, node.epoch, 0, 1, ())), Committed)
        assert isinstance(await engine.commit(node.batch()), Committed)

    async def test_P3_an_empty_batch_raises_the_fencing_number_of_its_node(self, engine: Engine) -> None:
        node = await joined(engine)
        answer = await engine.commit(Batch(0, node.epoch, 0, 40, ()))
        assert isinstance(answer, Committed)
        assert answer.results == ()
        assert await engine.commit(node.batch()) == Fenced(40)

    async def test_P3_a_batch_with_only_conflicts_raises_the_fencing_number_of_its_node(self, engine: Engine) -> None:
        node = await joined(engine)
        await node.commit(Write(user_of(engine, 0), record(9), record(10)))
        assert await engine.commit(Batch(0, node.epoch, 0, 5, ())) == Fenced(1)

    async def test_P3_a_batch_that_arrives_after_its_node_raised_its_fencing_number_changes_nothing(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        doubtful = node.batch(Write(user, None, record(1), 5, b"n", unsaved=True))
        assert await engine.jump(0, node.epoch, 10) == 0, "it did not run"
        before = await _everything(engine)
        assert await engine.commit(doubtful) == Fenced(10)
        assert await _everything(engine) == before
        node.last = 10
        await node.write(Write(user, None, record(2)))

    async def test_P3_raising_the_fencing_number_of_a_node_returns_the_number_of_its_last_executed_batch(
        self, engine: Engine
    ) -> None:
        node = await joined(engine)
        assert isinstance(await engine.commit(node.batch()), Committed)
        assert await engine.jump(0, node.epoch, 10) == 1
        assert await engine.jump(0, node.epoch, 20) == 10

    async def test_P3_a_node_that_has_not_joined_a_shard_cannot_raise_its_fencing_number_there(
        self, engine: Engine
    ) -> None:
        epoch = new_epoch()
        assert await engine.jump(0, epoch, 10) is None
        assert await engine.commit(Batch(0, epoch, 10, 11, ())) == Fenced(None)

    async def test_P3_the_fencing_number_of_a_node_never_decreases(self, engine: Engine) -> None:
        node = await joined(engine)
        assert await engine.join(0, node.epoch, 10)
        assert await engine.join(0, node.epoch, 3)
        assert await engine.jump(0, node.epoch, 4) == 10
        assert isinstance(await engine.commit(Batch(0, node.epoch, 10, 11, ())), Committed)

    async def test_P3_a_node_whose_run_id_was_retired_by_another_node_can_write_nothing(
        self, engine: Engine, second: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        late = node.batch(Write(user, record(1), record(2), 5, b"n", unsaved=True))
        await second.retire(0, node.epoch)
        before = await _everything(engine)
        assert await engine.commit(late) == Fenced(None)
        assert await engine.jump(0, node.epoch, 10) is None
        assert await _everything(engine) == before

    async def test_P3_a_node_cannot_join_a_shard_again_under_a_retired_run_id(
        self, engine: Engine, second: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.commit()
        await second.retire(0, node.epoch)
        assert not await engine.join(0, node.epoch, node.last)
        assert await engine.jump(0, node.epoch, 10) is None
        assert await engine.commit(node.batch(Write(user, None, record(1)))) == Fenced(None)
        assert await stored(engine, user) is None
        for _ in range(20):
            await second.retire(0, new_epoch())
        assert not await engine.join(0, node.epoch, node.last)
        assert await engine.commit(node.batch()) == Fenced(None)

    async def test_P3_a_node_whose_run_id_was_retired_before_it_joined_a_shard_cannot_write_to_it(
        self, engine: Engine
    ) -> None:
        epoch = new_epoch()
        await engine.retire(0, epoch)
        await engine.join(0, epoch, 0)
        assert await engine.commit(Batch(0, epoch, 0, 1, ())) == Fenced(None)
        if engine.shards > 1:
            await engine.join(1, epoch, 0)
            assert isinstance(await engine.commit(Batch(1, epoch, 0, 1, ())), Committed)

    async def test_P3_retiring_the_run_id_of_a_node_changes_no_records_and_affects_no_other_node(
        self, engine: Engine
    ) -> None:
        node, other, user = await joined(engine), await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        await engine.retire(0, node.epoch)
        await engine.retire(0, "never-was")
        await other.write(Write(user, record(1), record(2)))

    async def test_P3_a_lower_fencing_number_reveals_a_rollback_of_the_shard(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        past = await self.snapshot(0)
        await node.write(Write(user, record(1), record(2)))
        await self.roll_back(0, past)
        assert await engine.commit(node.batch(Write(user, record(2), record(3)))) == Fenced(1)

    async def test_P3_an_emptied_shard_refuses_batches_until_the_node_joins_it_again(self, engine: Engine) -> None:
        node = await joined(engine)
        await node.commit()
        await self.empty(0)
        assert await engine.commit(node.batch()) == Fenced(None)
        await engine.join(0, node.epoch, node.last)
        await node.commit()

    # P4: due

    async def test_P4_a_due_timer_stays_due_until_the_next_commit_of_its_record(
        self, engine: Engine, second: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100))
        for handle in (engine, second, engine):
            assert (await due_in(handle, 0, 100, 10)).users == (user,)
        await node.write(Write(user, record(1), record(2)))
        assert await due_in(engine, 0, 100, 10) == Due((), None)

    async def test_P4_a_timer_is_not_due_a_millisecond_early(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=NOW))
        assert await due_in(engine, 0, NOW - 1, 10) == Due((), NOW)
        assert await due_in(engine, 0, NOW, 10) == Due((user,), None)

    async def test_P4_due_timers_are_returned_earliest_first_up_to_the_limit(self, engine: Engine) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 6))
        for user, at in zip(users, (500, 100, 300, 200, 400, 900), strict=True):
            await node.write(Write(user, None, record(1), wake_at=at))
        by_time = [users[1], users[3], users[2], users[4], users[0]]
        due = await due_in(engine, 0, 500, 10)
        assert due == Due(tuple(by_time), 900)
        assert list(due.wakes) == sorted(due.wakes)
        assert len(due.wakes) == len(due.users)
        assert due.wakes[-1] <= 500
        assert await due_in(engine, 0, 500, 3) == Due(tuple(by_time[:3]), 400)
        assert await due_in(engine, 0, 500, 5) == Due(tuple(by_time), 900)
        assert await due_in(engine, 0, 99, 3) == Due((), 100)

    async def test_P4_one_call_returns_the_due_timers_of_each_requested_shard(self, engine: Engine) -> None:
        for shard in range(0, engine.shards, 3):
            await (await joined(engine, shard)).write(
                Write(user_of(engine, shard), None, record(1), wake_at=100 + shard)
            )
        found = await engine.due(range(engine.shards), 100, 10)
        assert set(found) == set(range(engine.shards))
        assert found[0] == Due((user_of(engine, 0),), None)
        for shard in range(1, engine.shards):
            assert found[shard] == Due((), 100 + shard if shard % 3 == 0 else None)
        assert await engine.due([], 100, 10) == {}

    async def test_P4_many_due_timers_are_returned_in_order_with_any_limit(self, engine: Engine) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 200))
        wakes = {user: 1_000 + number * 37 % 200 for number, user in enumerate(users)}
        await node.write(*[Write(user, None, record(1), wake_at=at) for user, at in wakes.items()])
        in_order = sorted(users, key=lambda user: wakes[user])
        for limit in (1, 7, 150):
            due = await due_in(engine, 0, 1_150, limit)
            assert list(due.users) == in_order[:limit]
            assert due.next_at == 1_000 + limit
        for user in in_order[:100]:
            await node.write(Write(user, record(1), record(2), wake_at=wakes[user] + 10_000))
        assert await due_in(engine, 0, 1_099, 10) == Due((), 1_100)
        assert (await due_in(engine, 0, 1_100, 10)).users == (in_order[100],)

    async def test_P4_of_two_nodes_that_handle_a_due_timer_at_once_only_one_commits(
        self, engine: Engine, second: Engine
    ) -> None:
        one, other, user = await joined(engine), await joined(second), user_of(engine, 0)
        await one.write(Write(user, None, record(1), wake_at=100))
        head = await head_of(engine)
        for reaper in (one, other):
            await reaper.engine.due([0], 100, 10)
        change = Write(user, record(1), record(2), note=b"offline")
        answers = await asyncio.gather(one.commit(change), other.commit(change))
        assert sorted(type(answer.results[0]).__name__ for answer in answers) == ["Conflict", "Written"]
        assert await head_of(engine) == head + 1

    async def test_P4_a_timer_that_was_moved_and_moved_back_is_due_once(self, engine: Engine) -> None:
        node = await joined(engine)
        moved, other = islice(users_of(engine, 0), 2)
        await node.write(Write(moved, None, record(1), wake_at=100), Write(other, None, record(1), wake_at=200))
        for version, at in ((2, 300), (3, 50), (4, 300), (5, 100)):
            await node.write(Write(moved, record(version - 1), record(version), wake_at=at))
        assert await due_in(engine, 0, 100, 10) == Due((moved,), 200)
        assert await due_in(engine, 0, 1000, 1) == Due((moved,), 200)
        assert await due_in(engine, 0, 1000, 10) == Due((moved, other), None)

    async def test_P4_a_timer_is_due_only_in_its_own_shard(self, engine: Engine) -> None:
        if engine.shards < 2:
            pytest.skip("one shard")
        await (await joined(engine, 1)).write(Write(user_of(engine, 1), None, record(1), wake_at=100))
        assert await due_in(engine, 0, 100, 10) == Due((), None)
        assert (await due_in(engine, 1, 100, 10)).users == (user_of(engine, 1),)

    async def test_P4_due_timers_can_be_requested_for_an_earlier_time_than_in_the_previous_call(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100))
        assert (await due_in(engine, 0, 100, 10)).users == (user,)
        assert await due_in(engine, 0, 50, 10) == Due((), 100)

    # P5: the log

    async def test_P5_log_entries_have_consecutive_numbers_in_commit_order(self, engine: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        users = list(islice(users_of(engine, 0), 20))
        for few in (users[:1], users[1:8], users[8:20]):
            await node.write(*[Write(user, None, record(1), note=user.encode()) for user in few])
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.entries == tuple(
            Entry(number, user, record(1), user.encode()) for number, user in enumerate(users, head + 1)
        )
        assert (part.head, part.gap) == (head + 20, False)
        assert await head_of(engine) == head + 20

    async def test_P5_a_log_reader_gets_only_the_entries_after_its_cursor(self, engine: Engine, second: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        for user in islice(users_of(engine, 0), 3):
            await node.write(Write(user, None, record(1), note=b"n"))
            part = await log_after(second, 0, head)
            assert part is not None
            assert ([entry.user for entry in part.entries], part.gap) == ([user], False)
            head = part.head
        assert await log_after(second, 0, head) is None

    async def test_P5_a_log_reader_at_cursor_zero_gets_the_whole_log_or_learns_that_entries_are_missing(
        self, engine: Engine
    ) -> None:
        node = await joined(engine)
        await node.write(*[Write(user, None, record(1), note=b"n") for user in islice(users_of(engine, 0), 3)])
        part = await log_after(engine, 0, 0)
        assert part is not None
        assert part.gap or [entry.number for entry in part.entries] == [1, 2, 3]

    async def test_P5_a_log_entry_contains_the_record_of_its_commit(self, engine: Engine) -> None:
        node, user, head = await joined(engine), user_of(engine, 0), await head_of(engine)
        await node.write(Write(user, None, record(1), note=b"1"))
        await node.write(Write(user, record(1), record(2), note=b"2"))
        part = await log_after(engine, 0, head)
        assert part is not None
        assert [(entry.record, entry.note) for entry in part.entries] == [(record(1), b"1"), (record(2), b"2")]

    async def test_P5_the_last_log_number_of_every_shard_can_be_read(self, engine: Engine) -> None:
        assert set(await engine.heads()) == set(range(engine.shards))

    async def test_P5_one_read_of_several_logs_returns_only_shards_with_new_entries(self, engine: Engine) -> None:
        heads = await engine.heads()
        busy = range(0, engine.shards, 3)
        for shard in busy:
            await (await joined(engine, shard)).write(Write(user_of(engine, shard), None, record(1), note=b"n"))
        parts = await engine.tail(heads, 0)
        assert sorted(part.shard for part in parts) == list(busy)
        assert all(part.head == heads[part.shard] + 1 and not part.gap for part in parts)
        assert await engine.tail({}, 0) == []

    async def test_P5_a_reader_behind_a_trimmed_log_learns_that_entries_are_missing(self, engine: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        users = list(islice(users_of(engine, 0), 5))
        await node.write(*[Write(user, None, record(1), note=b"n") for user in users])
        await self.trim_log(0, 2)
        part = await log_after(engine, 0, head)
        assert part is not None
        assert (part.gap, part.head) == (True, head + 5)
        assert [entry.number for entry in part.entries] == [head + 4, head + 5]
        still_there = await log_after(engine, 0, head + 3)
        assert still_there is not None
        assert (still_there.gap, len(still_there.entries)) == (False, 2)

    async def test_P5_a_log_of_long_records_is_bounded_by_bytes_and_its_reader_learns_of_missing_entries(
        self, engine: Engine
    ) -> None:
        node, user, head, before = await joined(engine), user_of(engine, 0), await head_of(engine), None
        for version in range(1, 151):
            long = record(version) + b"x" * 20_000
            await node.write(Write(user, before, long, note=b"n"))
            before = long
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.gap
        assert part.entries[-1].record == before
        assert LOG_BYTES // 3 < sum(len(entry.record or b"") for entry in part.entries) <= LOG_BYTES + 20_100

    async def test_P5_a_log_whose_entries_were_all_trimmed_keeps_its_last_number(self, engine: Engine) -> None:
        node, head = await joined(engine), await head_of(engine)
        a, b = islice(users_of(engine, 0), 2)
        await node.write(Write(a, None, record(1), note=b"n"))
        await self.trim_log(0, 0)
        assert await log_after(engine, 0, head) == LogPart(0, (), LogPosition(head + 1, ""), gap=True)
        assert await log_after(engine, 0, head + 1) is None
        await node.write(Write(b, None, record(1), note=b"n"))
        part = await log_after(engine, 0, head + 1)
        assert part is not None
        assert ([entry.number for entry in part.entries], part.gap) == ([head + 2], False)

    async def test_P5_a_reader_with_a_cursor_beyond_the_log_learns_that_entries_are_missing(
        self, engine: Engine
    ) -> None:
        node, head = await joined(engine), await head_of(engine)
        await node.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        part = await log_after(engine, 0, head + 7)
        assert part is not None
        assert (part.gap, part.head) == (True, head + 1)

    async def test_P5_a_log_reader_of_an_emptied_shard_learns_that_entries_are_missing(self, engine: Engine) -> None:
        node = await joined(engine)
        await node.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        head = await head_of(engine)
        await self.empty(0)
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.gap
        assert part.head == await head_of(engine) != head

    async def test_P5_a_reader_learns_of_missing_entries_if_a_rolled_back_log_reaches_its_cursor_again(
        self, engine: Engine
    ) -> None:
        node, other, user = await joined(engine), await joined(engine), user_of(engine, 0)
        past = await self.snapshot(0)
        await node.write(Write(user, None, record(1, b"lost"), note=b"lost"))
        head = await head_of(engine)
        await self.roll_back(0, past)
        await other.write(Write(user, None, record(1, b"new"), note=b"new"))
        assert await head_of(engine) == head, "the numbers are the same"
        part = await log_after(engine, 0, head)
        assert part is not None
        assert (part.gap, part.entries) == (True, ())
        assert await log_after(engine, 0, part.head) is None

    async def test_P5_a_reader_learns_of_missing_entries_if_a_rolled_back_log_grows_beyond_its_cursor(
        self, engine: Engine
    ) -> None:
        node, other, user = await joined(engine), await joined(engine), user_of(engine, 0)
        past = await self.snapshot(0)
        await node.write(Write(user, None, record(1, b"lost"), note=b"lost"))
        head = await head_of(engine)
        await self.roll_back(0, past)
        await other.write(Write(user, None, record(1, b"new"), note=b"new"))
        await other.write(Write(user, record(1, b"new"), record(2, b"new"), note=b"next"))
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.gap
        assert part.head == await head_of(engine)
        assert await log_after(engine, 0, part.head) is None

    async def test_P5_a_waiting_reader_learns_of_missing_entries_if_a_rolled_back_log_grows_beyond_its_cursor(
        self, engine: Engine, second: Engine
    ) -> None:
        node, other, user = await joined(engine), await joined(engine), user_of(engine, 0)
        past = await self.snapshot(0)
        await node.write(Write(user, None, record(1, b"lost"), note=b"lost"))
        waiting = asyncio.create_task(second.tail({0: await head_of(engine)}, PATIENCE))
        await asyncio.sleep(A_MOMENT)
        await self.roll_back(0, past)
        await other.write(Write(user, None, record(1, b"new"), note=b"new"))
        await other.write(Write(user, record(1, b"new"), record(2, b"new"), note=b"next"))
        async with asyncio.timeout(PATIENCE):
            [part] = await waiting
        assert part.gap

    async def test_P5_when_the_recovery_of_a_shard_begins_every_log_reader_learns_that_entries_are_missing(
        self, engine: Engine
    ) -> None:
        await settled(engine)
        node = await joined(engine)
        await node.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        head = await head_of(engine)
        await engine.unsettle(0, NOW + 1)
        part = await log_after(engine, 0, head)
        assert part is not None
        assert part.gap
        await engine.unsettle(0, NOW + 50)
        assert await log_after(engine, 0, part.head) is None

    async def test_P5_a_commit_wakes_a_waiting_log_reader(self, engine: Engine, second: Engine) -> None:
        node, heads = await joined(engine), await engine.heads()
        waiting = asyncio.create_task(second.tail(heads, PATIENCE))
        await asyncio.sleep(A_MOMENT)
        assert not waiting.done()
        await node.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        async with asyncio.timeout(PATIENCE / 2):
            parts = await waiting
        assert [(part.shard, len(part.entries), part.gap) for part in parts] == [(0, 1, False)]

    async def test_P5_a_waiting_log_reader_ignores_entries_of_other_shards(self, engine: Engine) -> None:
        if engine.shards < 2:
            pytest.skip("one shard")
        mine, other, head = await joined(engine, 1), await joined(engine, 0), await head_of(engine, 1)
        waiting = asyncio.create_task(engine.tail({1: head}, PATIENCE))
        await asyncio.sleep(A_MOMENT)
        await other.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        await asyncio.sleep(A_MOMENT)
        assert not waiting.done()
        await mine.write(Write(user_of(engine, 1), None, record(1), note=b"n"))
        assert [part.shard for part in await waiting] == [1]

    async def test_P5_a_waiting_log_reader_gets_an_empty_result_at_the_timeout(self, engine: Engine) -> None:
        assert await engine.tail(await engine.heads(), A_MOMENT) == []

    async def test_P5_a_waiting_log_reader_can_be_cancelled(self, engine: Engine) -> None:
        node, heads = await joined(engine), await engine.heads()
        waiting = asyncio.create_task(engine.tail(heads, PATIENCE))
        await asyncio.sleep(A_MOMENT)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await node.write(Write(user_of(engine, 0), None, record(1), note=b"n"))
        assert len(await engine.tail(heads, 0)) == 1

    # P6: settled

    async def test_P6_reads_and_commits_tell_whether_the_shard_is_in_recovery(self, engine: Engine) -> None:
        await settled(engine)
        node, user = await joined(engine), user_of(engine, 0)
        assert await engine.load([user]) == [Loaded(None, settled=True)]
        assert (await node.commit()).settled
        assert (await due_in(engine, 0, NOW, 10)).settled
        await engine.unsettle(0, NOW)
        assert await engine.load([user]) == [Loaded(None, settled=False)]
        assert not (await node.commit()).settled
        assert not (await due_in(engine, 0, NOW, 10)).settled

    async def test_P6_a_shard_in_recovery_accepts_commits(self, engine: Engine) -> None:
        await engine.unsettle(0, NOW)
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        assert await engine.load([user]) == [Loaded(record(1), settled=False)]

    async def test_P6_the_recovery_of_a_shard_ends_only_after_the_duration_that_the_caller_gives(
        self, engine: Engine
    ) -> None:
        await settled(engine)
        await engine.unsettle(0, NOW)
        assert not await engine.settle(0, NOW + 4_999, 5_000)
        assert not await is_settled(engine, 0)
        assert await engine.settle(0, NOW + 5_000, 5_000)
        assert await is_settled(engine, 0)

    async def test_P6_the_recovery_of_a_shard_starts_with_the_first_of_several_reports_of_data_loss(
        self, engine: Engine, second: Engine
    ) -> None:
        await settled(engine)
        await engine.unsettle(0, NOW)
        await second.unsettle(0, NOW + 4_000)
        assert await second.settle(0, NOW + 5_000, 5_000)

    async def test_P6_a_recovered_shard_can_be_put_into_recovery_again(self, engine: Engine) -> None:
        await settled(engine)
        for start in (NOW, NOW + 60_000):
            await engine.unsettle(0, start)
            assert not await engine.settle(0, start + 1, 5_000)
            assert await engine.settle(0, start + 5_000, 5_000)
        assert await engine.settle(0, NOW, 5_000), "settled is settled, whatever the time"

    async def test_P6_a_time_before_the_start_of_the_recovery_of_a_shard_does_not_end_it(self, engine: Engine) -> None:
        await settled(engine)
        await engine.unsettle(0, NOW)
        assert not await engine.settle(0, NOW - 60_000, 5_000)

    async def test_P6_the_recovery_of_a_shard_does_not_affect_other_shards(self, engine: Engine) -> None:
        if engine.shards < 2:
            pytest.skip("one shard")
        await settled(engine, 0)
        await settled(engine, 1)
        await engine.unsettle(1, NOW)
        assert await is_settled(engine, 0)
        assert not await is_settled(engine, 1)

    async def test_P6_an_emptied_shard_is_in_recovery_without_a_report_of_data_loss(self, engine: Engine) -> None:
        await settled(engine)
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        await self.empty(0)
        assert await engine.load([user]) == [Loaded(None, settled=False)]

    async def test_P6_the_first_attempt_to_end_the_recovery_of_an_emptied_shard_only_sets_its_start_time(
        self, engine: Engine
    ) -> None:
        await settled(engine)
        await self.empty(0)
        assert not await engine.settle(0, NOW, 0)
        assert not await engine.settle(0, NOW + 4_999, 5_000)
        assert await engine.settle(0, NOW + 5_000, 5_000)

    async def test_P6_the_recovery_of_an_emptied_shard_starts_with_the_first_report_of_data_loss(
        self, engine: Engine
    ) -> None:
        await settled(engine)
        await self.empty(0)
        await engine.unsettle(0, NOW)
        await engine.unsettle(0, NOW + 3_000)
        assert await engine.settle(0, NOW + 5_000, 5_000)

    # Offers: records that nodes write back to an unsettled shard

    async def test_P6_a_record_written_back_to_a_shard_later_postpones_the_end_of_its_recovery(
        self, engine: Engine
    ) -> None:
        await self.empty(0)
        await engine.unsettle(0, NOW)
        user = user_of(engine, 0)
        await engine.offer(0, [Offer(user, 5, record(5), None, unsaved=False)], since=NOW + 2_000)
        await engine.offer(0, [Offer(user, 6, record(6), None, unsaved=False)], since=NOW - 1_000)
        assert not await engine.settle(0, NOW + 6_999, 5_000)
        assert await engine.settle(0, NOW + 7_000, 5_000)
        assert await stored(engine, user) == record(6)

    async def test_P6_a_missing_record_is_written_back_in_recovery_with_timer_and_unsaved_flag(
        self, engine: Engine
    ) -> None:
        await engine.unsettle(0, NOW)
        user, head = user_of(engine, 0), await head_of(engine)
        await engine.offer(0, [Offer(user, 5, record(5), wake_at=100, unsaved=True)])
        assert await stored(engine, user) == record(5)
        assert await due_in(engine, 0, 100, 10) == Due((user,), None)
        assert await engine.unsaved(0, 10) == [(user, record(5))]
        assert await head_of(engine) == head

    async def test_P6_a_record_written_back_in_recovery_replaces_only_an_older_record(
        self, engine: Engine, second: Engine
    ) -> None:
        await engine.unsettle(0, NOW)
        older, equal, newer = islice(users_of(engine, 0), 3)
        await engine.offer(0, [Offer(user, 5, record(5, b"old"), 500, unsaved=False) for user in (older, equal, newer)])
        await second.offer(
            0,
            [
                Offer(older, 6, record(6, b"new"), 600, unsaved=True),
                Offer(equal, 5, record(5, b"new"), 100, unsaved=True),
                Offer(newer, 4, record(4, b"new"), 100, unsaved=True),
            ],
        )
        found = [loaded.record for loaded in await engine.load([older, equal, newer])]
        assert found == [record(6, b"new"), record(5, b"old"), record(5, b"old")]
        assert await due_in(engine, 0, 599, 10) == Due(tuple(sorted((equal, newer))), 600)
        assert await engine.unsaved(0, 10) == [(older, record(6, b"new"))]

    async def test_P6_records_written_back_in_recovery_are_compared_by_their_version_as_a_number(
        self, engine: Engine
    ) -> None:
        await engine.unsettle(0, NOW)
        user = user_of(engine, 0)
        for version, expected in ((255, 255), (256, 256), (99, 256), (NOW, NOW), (0xFFFF, NOW), (2**48 - 1, 2**48 - 1)):
            await engine.offer(0, [Offer(user, version, record(version), None, unsaved=False)])
            assert await stored(engine, user) == record(expected)

    async def test_P6_a_record_written_back_without_a_timer_removes_the_old_timer_and_keeps_the_unsaved_flag(
        self, engine: Engine
    ) -> None:
        await engine.unsettle(0, NOW)
        user = user_of(engine, 0)
        await engine.offer(0, [Offer(user, 5, record(5), 100, unsaved=True)])
        await engine.offer(0, [Offer(user, 6, record(6), None, unsaved=False)])
        assert await due_in(engine, 0, 1000, 10) == Due((), None)
        assert await engine.unsaved(0, 10) == [(user, record(6))]

    async def test_P6_a_recovered_shard_ignores_records_that_nodes_write_back(self, engine: Engine) -> None:
        await settled(engine)
        node = await joined(engine)
        removed, older = islice(users_of(engine, 0), 2)
        await node.write(Write(removed, None, record(5), unsaved=True), Write(older, None, record(5)))
        await engine.saved(0, [(removed, record(5), True)])
        await engine.offer(0, [Offer(user, 6, record(6), 100, unsaved=True) for user in (removed, older)])
        assert [found.record for found in await engine.load([removed, older])] == [None, record(5)]
        assert await due_in(engine, 0, 1000, 10) == Due((), None)
        assert await engine.unsaved(0, 10) == []
        await engine.unsettle(0, NOW)
        await engine.offer(0, [Offer(older, 6, record(6), 100, unsaved=True)])
        assert await stored(engine, older) == record(6)

    async def test_P6_a_record_written_back_in_recovery_can_be_listed_and_replaced_by_a_commit(
        self, engine: Engine
    ) -> None:
        await engine.unsettle(0, NOW)
        users = list(islice(users_of(engine, 0), 300))
        await engine.offer(0, [Offer(user, 5, record(5), None, unsaved=False) for user in users])
        assert sorted(user for user, _ in await walked(engine, 0, 50)) == sorted(users)
        await (await joined(engine)).write(Write(users[0], record(5), record(6)))

    # P7: no clock of its own

    async def test_P7_store_time_returns_milliseconds_and_never_decreases(self, engine: Engine, second: Engine) -> None:
        first = await engine.store_time()
        assert isinstance(first, int)
        assert first <= await second.store_time()

    async def test_P7_due_timers_and_the_end_of_a_recovery_depend_only_on_the_time_that_the_caller_gives(
        self, engine: Engine
    ) -> None:
        await settled(engine)
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=4_000_000_000_000))
        assert (await due_in(engine, 0, 3_999_999_999_999, 10)).users == ()
        assert (await due_in(engine, 0, 4_000_000_000_000, 10)).users == (user,)
        await engine.unsettle(0, 1_000)
        assert not await engine.settle(0, 1_999, 1_000)
        assert await engine.settle(0, 2_000, 1_000)

    # P8: errors

    async def test_P8_the_errors_unavailable_and_unknown_outcome_are_not_subclasses_of_each_other(self) -> None:
        assert not issubclass(Unavailable, UnknownOutcome)
        assert not issubclass(UnknownOutcome, Unavailable)

    async def test_P8_a_read_raises_unavailable_if_the_store_is_unreachable(self, engine: Engine) -> None:
        async with self.cut_off():
            for read in (
                engine.load(["ana"]),
                engine.due([0], NOW, 10),
                engine.heads(),
                engine.leases(),
                engine.walk(0, None, 10),
                engine.store_time(),
            ):
                with pytest.raises(Unavailable):
                    await read

    async def test_P8_a_commit_that_raises_unavailable_writes_nothing(self, engine: Engine, second: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        async with self.cut_off():
            with pytest.raises((Unavailable, UnknownOutcome)) as caught:
                await engine.commit(node.batch(Write(user, None, record(1))))
        if caught.type is Unavailable:
            assert await stored(second, user) is None
        assert await engine.jump(0, node.epoch, 10) in (0, 1), "afterwards the outcome can be learnt"

    # Walks

    @pytest.mark.parametrize("limit", [1, 7, 1000])
    async def test_a_page_by_page_read_of_a_shard_returns_every_record(self, engine: Engine, limit: int) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 60))
        await node.write(*[Write(user, None, record(1)) for user in users])
        found = await walked(engine, 0, limit)
        assert dict(found) == dict.fromkeys(users, record(1))

    async def test_a_page_by_page_read_of_an_empty_shard_ends_at_once(self, engine: Engine) -> None:
        assert await walked(engine, 0, 10) == []

    @pytest.mark.parametrize("cursor", ["", "zzz", "-1", "1.-1", "0.x", "\0"])
    async def test_a_page_by_page_read_of_a_shard_refuses_an_invalid_cursor(self, engine: Engine, cursor: str) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            await engine.walk(0, cursor, 10)

    async def test_a_batch_of_nine_thousand_writes_is_executed_completely(self, engine: Engine) -> None:
        """A batch is written as a whole (P2) even if it is larger than what the store takes in one command."""
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 9_000))
        await node.write(*[Write(u, None, record(1), wake_at=NOW, note=b"n", unsaved=True) for u in users])
        assert len(await engine.unsaved(0, 10_000)) == len(users)
        assert len((await engine.due([0], NOW, 10_000))[0].users) == len(users)
        assert (await engine.heads())[0] == len(users)
        await engine.saved(0, [(user, record(1), True) for user in users])
        assert await walked(engine, 0, 1000) == []
        assert (await engine.due([0], NOW, 10))[0].next_at is None

    async def test_a_page_by_page_read_of_a_shard_returns_no_records_of_other_shards(self, engine: Engine) -> None:
        if engine.shards < 2:
            pytest.skip("one shard")
        await (await joined(engine, 1)).write(Write(user_of(engine, 1), None, record(1)))
        assert await walked(engine, 0, 10) == []

    async def test_a_page_by_page_read_of_a_shard_misses_no_unchanged_record_while_others_come_and_go(
        self, engine: Engine
    ) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 400))
        staying, leaving, coming = users[1:200:2], users[0:200:2], users[200:]
        await node.write(*[Write(user, None, record(1)) for user in users[:200]])
        seen: list[tuple[str, bytes]] = []
        page, moves = await engine.walk(0, None, 10), zip(leaving, coming[::2], coming[1::2], strict=True)
        while page.cursor is not None:
            seen += page.records
            for leaver, comer, guest in islice(moves, 10):
                await node.write(
                    Write(leaver, record(1), None),
                    Write(comer, None, record(1)),
                    Write(guest, None, record(1)),
                    Write(guest, record(1), None),
                )
            page = await engine.walk(0, page.cursor, 10)
        seen += page.records
        assert {user for user, _ in seen} >= set(staying)
        assert set(staying) | set(leaving) | set(coming) >= {user for user, _ in seen}

    async def test_a_page_by_page_read_of_a_shard_ends_although_most_records_are_removed_meanwhile(
        self, engine: Engine
    ) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 3000))
        await node.write(*[Write(user, None, record(1)) for user in users])
        page = await engine.walk(0, None, 1500)
        seen = {user for user, _ in page.records}
        await node.write(*[Write(user, record(1), None) for user in users[:-50]])
        while page.cursor is not None:
            page = await engine.walk(0, page.cursor, 100)
            seen |= {user for user, _ in page.records}
        assert seen >= set(users[-50:])

    # Leases

    async def test_every_node_reads_from_the_store_the_renewed_leases_of_all_nodes(
        self, engine: Engine, second: Engine
    ) -> None:
        one, other = new_epoch(), new_epoch()
        assert await engine.renew(Lease(one, 1, NOW), begins=True)
        assert await second.renew(Lease(other, 1, NOW), begins=True)
        assert await engine.renew(Lease(one, 2, NOW + 3_333))
        found = {lease.epoch: lease for lease in await second.leases()}
        assert found == {one: Lease(one, 2, NOW + 3_333), other: Lease(other, 1, NOW)}

    async def test_a_missing_lease_can_be_started_but_not_renewed(self, engine: Engine) -> None:
        epoch = new_epoch()
        for counter in (1, 2):
            assert not await engine.renew(Lease(epoch, counter, NOW))
        assert await engine.leases() == []
        assert await engine.renew(Lease(epoch, 7, NOW), begins=True)
        assert await engine.leases() == [Lease(epoch, 7, NOW)]

    async def test_a_late_renewal_does_not_lower_the_counter_of_a_lease(self, engine: Engine) -> None:
        epoch = new_epoch()
        for counter, renewed_at in ((1, NOW), (9, NOW + 90), (8, NOW + 80), (9, NOW + 95), (1, NOW)):
            assert await engine.renew(Lease(epoch, counter, renewed_at), begins=counter == 1)
        assert await engine.leases() == [Lease(epoch, 9, NOW + 90)]
        assert await engine.renew(Lease(epoch, 10, NOW + 100))
        assert await engine.leases() == [Lease(epoch, 10, NOW + 100)]

    async def test_only_one_of_two_nodes_can_mark_the_lease_of_a_third_node_dead(
        self, engine: Engine, second: Engine
    ) -> None:
        epoch = new_epoch()
        await engine.renew(Lease(epoch, 1, NOW), begins=True)
        marks = await asyncio.gather(engine.mark_dead(epoch, 1), second.mark_dead(epoch, 1))
        assert sorted(marks) == [False, True]
        assert await engine.leases() == [Lease(epoch, 1, NOW, dead=True)]

    async def test_a_lease_that_was_renewed_meanwhile_is_not_marked_dead(self, engine: Engine, second: Engine) -> None:
        epoch = new_epoch()
        await engine.renew(Lease(epoch, 1, NOW), begins=True)
        await engine.renew(Lease(epoch, 2, NOW + 1))
        assert not await second.mark_dead(epoch, 1)
        assert not await second.mark_dead("never-was", 1)
        assert await engine.renew(Lease(epoch, 3, NOW + 2))

    async def test_a_dead_lease_cannot_be_renewed(self, engine: Engine, second: Engine) -> None:
        epoch = new_epoch()
        await engine.renew(Lease(epoch, 1, NOW), begins=True)
        await second.mark_dead(epoch, 1)
        assert not await engine.renew(Lease(epoch, 2, NOW + 1))
        assert not await engine.renew(Lease(epoch, 1, NOW + 1), begins=True)
        assert await engine.leases() == [Lease(epoch, 1, NOW, dead=True)]

    async def test_a_dropped_lease_is_deleted_and_cannot_be_renewed(self, engine: Engine) -> None:
        epoch = new_epoch()
        await engine.renew(Lease(epoch, 1, NOW), begins=True)
        await engine.drop_lease(epoch)
        await engine.drop_lease(epoch)
        assert await engine.leases() == []
        assert not await engine.renew(Lease(epoch, 2, NOW))
        assert not await engine.mark_dead(epoch, 1)

    # Unsaved records: those that the ledger does not have yet

    async def test_records_with_the_unsaved_flag_are_returned_up_to_the_limit(self, engine: Engine) -> None:
        node = await joined(engine)
        users = list(islice(users_of(engine, 0), 5))
        await node.write(*[Write(user, None, record(1), unsaved=user != users[2]) for user in users])
        marked = {(user, record(1)) for user in users if user != users[2]}
        assert set(await engine.unsaved(0, 10)) == marked
        some = await engine.unsaved(0, 3)
        assert len(some) == 3
        assert set(some) < marked

    async def test_reporting_a_record_as_saved_clears_its_unsaved_flag_and_keeps_the_record(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100, unsaved=True))
        await engine.saved(0, [(user, record(1), False)])
        assert await engine.unsaved(0, 10) == []
        assert await stored(engine, user) == record(1)
        assert (await due_in(engine, 0, 100, 10)).users == (user,)

    async def test_reporting_a_record_as_saved_with_drop_removes_record_and_timer_without_a_log_entry(
        self, engine: Engine
    ) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), wake_at=100, unsaved=True))
        head = await head_of(engine)
        await engine.saved(0, [(user, record(1), True)])
        assert await stored(engine, user) is None
        assert await engine.unsaved(0, 10) == []
        assert await due_in(engine, 0, 1000, 10) == Due((), None)
        assert await walked(engine, 0, 10) == []
        assert await head_of(engine) == head

    async def test_reporting_a_record_as_saved_has_no_effect_if_the_record_changed_meanwhile(
        self, engine: Engine, second: Engine
    ) -> None:
        node = await joined(engine)
        changed, gone, same = islice(users_of(engine, 0), 3)
        await node.write(*[Write(user, None, record(1), 100, unsaved=True) for user in (changed, gone, same)])
        rows = await second.unsaved(0, 10)
        await node.write(Write(changed, record(1), record(2), wake_at=200), Write(gone, record(1), None))
        await second.saved(0, [(user, found, True) for user, found in rows])
        assert await engine.unsaved(0, 10) == [(changed, record(2))]
        assert [loaded.record for loaded in await engine.load([changed, gone, same])] == [record(2), None, None]
        assert await due_in(engine, 0, 1000, 10) == Due((changed,), None)

    async def test_a_record_dropped_after_it_was_saved_can_be_written_again(self, engine: Engine) -> None:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1), unsaved=True))
        await engine.saved(0, [(user, record(1), True)])
        await node.write(Write(user, None, record(2), unsaved=True))
        assert await engine.unsaved(0, 10) == [(user, record(2))]

    # Terms

    async def test_a_node_with_the_same_cluster_settings_may_open_the_store(self, second: Engine) -> None:
        await second.open(TERMS)

    @pytest.mark.parametrize("term", sorted(TERMS))
    async def test_a_node_with_a_different_cluster_setting_may_not_open_the_store_and_the_error_names_it(
        self, engine: Engine, second: Engine, term: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=term):
            await second.open({**TERMS, term: "another"})
        await second.open(TERMS)

    async def test_nodes_with_several_secrets_agree_if_they_share_one(self, engine: Engine, second: Engine) -> None:
        await engine.agree({**TERMS, "secret": "old"})
        await second.agree({"secret": "old new"})
        await engine.agree({"secret": "old"})  # a node that has not been changed yet
        await engine.agree({"secret": "old new"})
        await second.agree({"secret": "new"})
        await engine.agree({"secret": "old new"})
        await engine.agree({"secret": "new"})
        for stranger in ("old", "ne", "new2", "old newer"):
            with pytest.raises(ConfigurationError, match="the old and the new one"):
                await second.agree({"secret": stranger})
        await second.agree({"secret": "new"})

    async def test_a_cluster_setting_that_is_new_to_the_store_is_added_and_compared_from_then_on(
        self, engine: Engine, second: Engine
    ) -> None:
        await engine.open({**TERMS, "novelty": "1"})
        await second.open(TERMS)
        with pytest.raises(ConfigurationError, match="novelty"):
            await second.open({**TERMS, "novelty": "2"})

    async def test_a_node_that_may_not_open_the_store_writes_no_cluster_setting(
        self, engine: Engine, second: Engine
    ) -> None:
        with pytest.raises(ConfigurationError):
            await second.open({"novelty": "1", **TERMS, "grace": "another"})
        await engine.open({**TERMS, "novelty": "2"})

    # Direct messages

    async def test_a_message_sent_through_the_store_reaches_every_node_including_the_sender(
        self, engine: Engine, second: Engine
    ) -> None:
        await engine.send(b"one")
        await second.send(b"two\x00\r\n")
        assert await received(engine, 2) == [b"one", b"two\x00\r\n"]
        assert await received(second, 2) == [b"one", b"two\x00\r\n"]

    async def test_a_message_sent_through_the_store_is_received_once(self, engine: Engine) -> None:
        await engine.send(b"one")
        await received(engine, 1)
        assert await engine.receive(A_MOMENT) == []
        assert await engine.receive(0) == []

    async def test_a_message_sent_through_the_store_wakes_a_waiting_node(self, engine: Engine, second: Engine) -> None:
        waiting = asyncio.create_task(second.receive(PATIENCE))
        await asyncio.sleep(A_MOMENT)
        await engine.send(b"one")
        async with asyncio.timeout(PATIENCE / 2):
            assert await waiting == [b"one"]


async def _everything(engine: Engine, shard: int = 0) -> Sequence[object]:
    """Read everything that a batch can change in a shard: records, wake-ups, log position and unsaved records."""
    return (
        sorted(await walked(engine, shard, 1000)),
        await due_in(engine, shard, 2**48, 1000),
        await head_of(engine, shard),
        sorted(await engine.unsaved(shard, 1000)),
    )
