"""The PostgreSQL ledger keeps the contract, for one node and for several at once, and closes everything it opened."""

import asyncio
import re

import pytest
import sqlalchemy
from sqlalchemy.util import await_only

from herenow.core.model import Mode
from herenow.core.visibility import Preferences, PreferencesEdit
from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers import open_ledger
from herenow.ledgers.sql import LockKind
from herenow.ports import BlockRow, Choice, LedgerChange, RelationRow, Void
from herenow_testing.contracts.ledger import NOW, LedgerContract, chosen, contact, follow, gone, room, seen


class TestContract(LedgerContract):
    @pytest.fixture
    def ledger(self, ledger):
        return ledger


@pytest.fixture
async def other(database):
    """The ledger of another node."""
    ledger = open_ledger(database)
    await ledger.open()
    yield ledger
    await ledger.close()


class Held:
    """A transaction that pauses before its end until `go_on`."""

    def __init__(self, ledger, work):
        self._go_on = asyncio.Event()
        self._is_there = asyncio.Event()

        def held(connection):
            result = work(connection)
            self._is_there.set()
            await_only(self._go_on.wait())
            return result

        self._ending = asyncio.ensure_future(ledger._write(held))

    async def there(self):
        await asyncio.wait({self._ending, asyncio.ensure_future(self._is_there.wait())}, return_when="FIRST_COMPLETED")
        return self

    async def go_on(self):
        self._go_on.set()
        return await self._ending


def in_turn(ledger, told):
    def work(connection):
        ledger._changes.lock(connection)
        ledger._changes.add(connection, told)

    return work


async def is_waiting(server, count=1):
    """True if `count` transactions wait for a lock of another one."""
    [(waiting,)] = await server.sql("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return waiting >= count


async def until_waiting(server, count=1):
    async with asyncio.timeout(60):
        while not await is_waiting(server, count):
            await asyncio.sleep(0.01)


# --- Several nodes


async def test_several_nodes_that_open_an_empty_postgresql_database_at_once_share_one_database_id(server):
    url = await server.make_database("made_by_two")
    handles = [open_ledger(url) for _ in range(4)]
    await asyncio.gather(*(handle.open() for handle in handles))
    assert len({handle.id for handle in handles}) == 1
    await asyncio.gather(*(handle.close() for handle in handles))
    await server.drop_database("made_by_two")


async def test_a_node_reads_relations_blocks_and_revocations_of_another_node_from_the_change_table(ledger, other):
    head = await other.changes_head()
    await ledger.apply([follow("ana", "bo"), follow("bo", "ana")])
    await ledger.block(BlockRow("ana", "cy", NOW))
    await ledger.void(Void("dee", NOW, NOW + 10))
    told, _ = await other.changes(head, 10)
    assert [(change.kind, {change.a, change.b}) for change in told] == [
        ("relation", {"ana", "bo"}),
        ("relation", {"ana", "cy"}),
        ("void", {"dee", ""}),
    ]
    assert await other.contacts("ana", NOW) == ["bo"]
    assert await other.blocked("ana") == ["cy"]
    assert await other.void_of("dee") == Void("dee", NOW, NOW + 10)


async def test_a_change_table_row_waits_for_earlier_rows_that_are_not_committed_yet(server, ledger, other):
    """The race: one transaction takes number 1, another takes 2 and commits; a reader continues from 2 and never reads
    1.
    """
    slow = await Held(ledger, in_turn(ledger, [LedgerChange("relation", "ana", "bo")])).there()
    quick = asyncio.ensure_future(other.apply([follow("cy", "dee")]))
    await until_waiting(server)
    assert not quick.done()
    assert await other.changes(0, 10) == ([], 0)
    await slow.go_on()
    await quick
    told, _ = await other.changes(0, 10)
    assert [change.a for change in told] == ["ana", "cy"]


async def test_a_rolled_back_row_of_the_change_table_leaves_its_number_unused(server, ledger, other):
    def fail(connection):
        in_turn(ledger, [LedgerChange("relation", "ana", "bo")])(connection)
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="mind"):
        await ledger._write(fail)
    await other.set_idle_after("cy", 60_000)
    told, cursor = await ledger.changes(0, 10)
    assert told == [LedgerChange("preferences", "cy", "")]
    assert cursor == await other.changes_head() == 2


async def test_reading_the_highest_number_of_the_change_table_waits_for_uncommitted_lower_ones(server, ledger, other):
    """A starting node takes the head as its cursor and then reads: that read must contain every lower number."""
    slow = await Held(ledger, in_turn(ledger, [LedgerChange("relation", "ana", "bo")])).there()
    head = asyncio.ensure_future(other.changes_head())
    await until_waiting(server)
    assert not head.done()
    await slow.go_on()
    assert await head == 1
    assert (await other.changes(0, 10))[1] == 1


async def test_postgresql_reads_do_not_wait_for_uncommitted_writes(ledger, other):
    await ledger.set_preferences("ana", PreferencesEdit(public=True), NOW, None)

    def work(connection):
        ledger._changes.lock(connection)
        return ledger._visibility.set_preferences(connection, "ana", PreferencesEdit(public=False), NOW, None)

    slow = await Held(ledger, work).there()
    assert await other.preferences(["ana"]) == {"ana": Preferences(public=True)}
    await other.save_last_seen({"ana": NOW})  # nor do writes of last seens
    assert await seen(other, "ana") == NOW
    await slow.go_on()
    assert await other.preferences(["ana"]) == {}


async def test_deleting_a_user_also_deletes_a_last_seen_time_that_is_being_saved(server, ledger, other):
    """It was started before the deletion and would not see it."""
    await ledger.save_last_seen({"ana": NOW - 5})

    def work(connection):
        ledger._dialect.lock(LockKind.SAVING, connection)
        ledger._users.save_last_seen(connection, {"ana": NOW - 1})

    saving = await Held(ledger, work).there()
    erasing = asyncio.ensure_future(other.erase(Void("ana", NOW, NOW + 10, NOW)))
    await until_waiting(server)
    await saving.go_on()
    await erasing
    assert await ledger.remembered(["ana"]) == {}


async def test_of_two_modes_saved_at_once_by_two_nodes_the_one_with_the_higher_version_is_stored(ledger, other):
    for number in range(10):
        user = f"user-{number}"
        one, two = Choice(user, 2 * number + 1, Mode.BUSY), Choice(user, 2 * number + 2, Mode.INVISIBLE)
        await asyncio.gather(ledger.save_choices([one]), other.save_choices([two]))
        assert await chosen(ledger, user) == await chosen(other, user) == two


async def test_a_postgresql_transaction_that_ends_in_a_deadlock_is_retried(ledger, other):
    """Only foreign transactions on the tables can cause this; our own lock order prevents it."""
    await ledger.save_last_seen({"ana": NOW, "bo": NOW})
    tried = 0

    def crosswise(connection):
        nonlocal tried
        tried += 1
        connection.exec_driver_sql("UPDATE last_seen SET at = at + 1 WHERE \"user\" = 'bo'")
        if tried == 1:
            await_only(meet.wait())
        connection.exec_driver_sql("UPDATE last_seen SET at = at + 1 WHERE \"user\" = 'ana'")

    def straight(connection):
        # so that the other transaction detects the deadlock
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '60s'")
        connection.exec_driver_sql("UPDATE last_seen SET at = at + 1 WHERE \"user\" = 'ana'")
        await_only(meet.wait())
        connection.exec_driver_sql("UPDATE last_seen SET at = at + 1 WHERE \"user\" = 'bo'")

    meet = asyncio.Barrier(2)
    await asyncio.gather(ledger._write(crosswise), other._write(straight))
    assert tried == 2
    assert [await seen(ledger, user) for user in ("ana", "bo")] == [NOW + 2] * 2


# --- Runs of the embedded engine


async def test_a_second_server_on_a_postgresql_database_is_refused_while_the_first_one_runs(ledger, other):
    await ledger.close_runs()
    await ledger.open_marks("run", {"ana": 0}, [])
    await ledger.stamp_run("run", 5)
    with pytest.raises(ConfigurationError, match="in use by another herenow serve"):
        await other.close_runs()
    assert await other.open_runs() == {"run": 5}
    await ledger.close()
    assert await other.close_runs() == 1


async def test_a_server_takes_its_postgresql_lock_again_after_its_connection_was_cut(server, ledger, other, database):
    await ledger.close_runs()
    name = database.rpartition("/")[2]
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    await server.sql(cut)
    async with asyncio.timeout(60):
        while not ledger._run._session.is_closed():
            await asyncio.sleep(0.01)
    await ledger.stamp_run("run", NOW)
    with pytest.raises(ConfigurationError, match="in use"):
        await other.close_runs()


async def test_a_server_whose_postgresql_lock_another_server_took_raises_unavailable(server, ledger, other):
    await ledger.close_runs()
    ledger._run._session.terminate()
    async with asyncio.timeout(60):
        while True:
            try:
                await other.close_runs()
                break
            except ConfigurationError:
                await asyncio.sleep(0.01)
    with pytest.raises(Unavailable, match="has started on this database"):
        await ledger.stamp_run("run", NOW)


# --- Open and close


async def test_calls_to_a_postgresql_database_that_is_not_open_raise_unavailable(database):
    ledger = open_ledger(database)
    for _ in ("never opened", "closed"):
        with pytest.raises(Unavailable):
            await ledger.remembered(["ana"])
        with pytest.raises(Unavailable):
            await ledger.save_last_seen({"ana": NOW})
        with pytest.raises(Unavailable):
            _ = ledger.id
        await ledger.open()
        await ledger.close()


async def test_opening_an_open_postgresql_database_again_changes_nothing(ledger):
    await ledger.save_last_seen({"ana": NOW})
    await ledger.open()
    assert await seen(ledger, "ana") == NOW


async def test_last_seen_times_are_saved_to_postgresql_as_they_were_at_the_time_of_the_call(ledger):
    backlog = {f"user-{number}": NOW for number in range(1_000)}
    saving = asyncio.ensure_future(ledger.save_last_seen(backlog))
    await asyncio.sleep(0)
    backlog.clear()
    await saving
    assert len(await ledger.remembered([f"user-{number}" for number in range(1_000)])) == 1_000


async def test_closing_a_postgresql_database_waits_for_running_calls_and_leaves_no_connection(server, ledger, database):
    saving = [asyncio.ensure_future(ledger.save_last_seen({f"user-{number}": NOW})) for number in range(20)]
    reading = [asyncio.ensure_future(ledger.remembered(["ana"])) for _ in range(20)]
    await ledger.close_runs()
    await ledger.close()
    await asyncio.gather(*saving, *reading)
    name = database.rpartition("/")[2]
    counted = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    async with asyncio.timeout(60):
        while await server.sql(counted) != [(0,)]:
            await asyncio.sleep(0.01)
    await ledger.open()
    assert len(await ledger.remembered([f"user-{number}" for number in range(20)])) == 20


async def test_a_postgresql_transaction_is_completed_although_its_caller_was_cancelled(ledger):
    saving = asyncio.ensure_future(ledger.save_last_seen({"ana": NOW}))
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await ledger.close()
    await ledger.open()
    assert await seen(ledger, "ana") == NOW


async def test_a_node_with_many_calls_at_once_uses_few_postgresql_connections(server, ledger, database):
    await asyncio.gather(
        *(ledger.remembered([f"user-{number}"]) for number in range(200)),
        *(ledger.set_idle_after(f"user-{number}", 60_000) for number in range(50)),
    )
    name = database.rpartition("/")[2]
    [(count,)] = await server.sql(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'")
    assert count <= 6


async def test_saving_2000_last_seen_times_to_postgresql_is_one_insert_statement(ledger):
    asked = []

    def note(_connection, _cursor, statement, *_):
        asked.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        await ledger.save_last_seen({f"user-{number}": NOW for number in range(2_000)})
        await ledger.remembered([f"user-{number}" for number in range(2_000)])
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)
    kinds = [statement.split()[0] for statement in asked]
    assert kinds == ["SET", "SELECT", "INSERT", "SELECT"]  # its deadline, its lock, the save; the read


async def test_postgresql_commits_are_synchronous_whatever_the_database_default_is(server, ledger, database):
    """Whatever the default of the database is."""
    name = database.rpartition("/")[2]
    await server.sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await ledger.close()
    await ledger.open()
    assert await ledger._write(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar_one()) == "on"
    await server.sql(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    await ledger.close()
    await ledger.open()
    kept = await ledger._write(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar_one())
    assert kept == "remote_apply"


async def test_postgresql_orders_user_ids_by_their_bytes(ledger):
    users = ["Zoe", "a", "ana", "b", "é", "~"]
    await ledger.save_choices([Choice(user, 1, Mode.BUSY) for user in users])
    assert [choice.user for choice in await ledger.chosen("", 10)] == sorted(users)
    assert [choice.user for choice in await ledger.chosen("Zoe", 2)] == ["a", "ana"]


# --- Plans


async def test_no_postgresql_query_scans_a_whole_table(ledger):
    asked: dict[str, object] = {}

    def note(_connection, _cursor, statement, parameters, *_):
        asked[statement] = parameters

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        await use_everything(ledger)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)
    assert len(asked) > 15
    for statement, parameters in asked.items():
        if statement.startswith(("SELECT pg_", "SET ")):
            continue
        plan = await ledger._write(lambda c, s=statement, p=parameters: explained(c, s, p))
        assert not re.search(r"Seq Scan on (last_seen|choices|follows|contacts|members|changes)", plan), plan


def explained(connection, statement, parameters):
    # the tables are empty, so a full scan would be cheaper
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    return "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())


async def use_everything(ledger) -> None:
    rows: list[RelationRow] = [follow("ana", "bo"), contact("ana", "bo"), room("r", "ana")]
    await ledger.apply(rows)
    await ledger.apply([gone(row) for row in rows])
    await ledger.between("ana", ["bo"], NOW)
    await ledger.contacts("ana", NOW)
    await ledger.follows("ana", "bo")
    await ledger.is_member("r", "ana")
    await ledger.share_rooms("ana", ["bo"])
    await ledger.save_last_seen({"ana": NOW})
    await ledger.save_choices([Choice("ana", 1, Mode.BUSY)])
    await ledger.remembered(["ana"])
    await ledger.chosen("ana", 10)
    await ledger.changes(20_000, 10)
    await ledger.forget_changes(1)
    await ledger.erase(Void("ana", NOW, NOW + 1, NOW))
