"""The SQLite ledger keeps the contract, in a file and in memory, and closes everything it opened."""

import asyncio
import os
import shutil
import sqlite3
import stat
import threading

import pytest
import sqlalchemy

from herenow.core.model import Mode
from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.sqlite import SqliteLedger
from herenow.ports import Choice, RelationRow, Remembered
from herenow_testing.contracts.ledger import NOW, LedgerContract, contact, follow, gone, room, seen


@pytest.fixture(scope="session")
def made_before(tmp_path_factory):
    """The file of a new ledger: copying it is faster than migrating again for every test."""
    path = tmp_path_factory.mktemp("ledger") / "herenow.db"
    asyncio.run(SqliteLedger(path).migrate())
    return path


@pytest.fixture
async def ledger(tmp_path, made_before):
    ledger = SqliteLedger(shutil.copy(made_before, tmp_path / "herenow.db"))
    await ledger.open()
    yield ledger
    await ledger.close()


class TestInAFile(LedgerContract):
    @pytest.fixture
    def ledger(self, ledger):
        return ledger


class TestInMemory(LedgerContract):
    durable = False

    @pytest.fixture
    async def ledger(self):
        ledger = SqliteLedger(None)
        await ledger.open()
        yield ledger
        await ledger.close()


async def test_every_sqlite_database_has_its_own_id(tmp_path):
    ledgers = [SqliteLedger(None), SqliteLedger(None), SqliteLedger(tmp_path / "a.db"), SqliteLedger(tmp_path / "b.db")]
    for ledger in ledgers:
        await ledger.open()
    assert len({ledger.id for ledger in ledgers}) == len(ledgers)
    for ledger in ledgers:
        await ledger.close()


async def test_a_sqlite_commit_is_synced_to_the_disk_before_it_is_answered(ledger):
    assert await ledger._write(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar()) == "wal"
    assert await ledger._write(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar()) == 2  # FULL


async def test_relations_imported_by_another_process_are_read_from_the_change_table_of_sqlite(ledger, tmp_path):
    head = await ledger.changes_head()
    importer = SqliteLedger(tmp_path / "herenow.db")
    await importer.open()
    assert importer.id == ledger.id
    await importer.apply([follow("ana", "bo"), follow("bo", "ana")])
    told, _ = await ledger.changes(head, 10)
    assert [(change.kind, {change.a, change.b}) for change in told] == [("relation", {"ana", "bo"})]
    assert await ledger.contacts("ana", NOW) == ["bo"]
    await ledger.save_last_seen({"ana": NOW})
    assert await seen(importer, "ana") == NOW
    await importer.close()


async def test_several_processes_that_open_a_new_sqlite_file_at_once_share_one_database_id(tmp_path):
    handles = [SqliteLedger(tmp_path / "herenow.db") for _ in range(4)]
    await asyncio.gather(*(handle.open() for handle in handles))
    assert len({handle.id for handle in handles}) == 1
    await asyncio.gather(*(handle.close() for handle in handles))


async def test_last_seen_times_are_saved_to_sqlite_as_they_were_at_the_time_of_the_call(ledger):
    """The ledger writer keeps filling its backlog while a batch is being written."""
    backlog = {f"user-{number}": NOW for number in range(1_000)}
    saving = asyncio.ensure_future(ledger.save_last_seen(backlog))
    await asyncio.sleep(0)
    backlog.clear()
    await saving
    assert len(await ledger.remembered([f"user-{number}" for number in range(1_000)])) == 1_000


async def test_calls_to_a_sqlite_database_that_is_not_open_raise_unavailable(tmp_path):
    ledger = SqliteLedger(tmp_path / "herenow.db")
    for _ in ("never opened", "closed"):
        with pytest.raises(Unavailable):
            await ledger.remembered(["ana"])
        with pytest.raises(Unavailable):
            await ledger.save_last_seen({"ana": NOW})
        with pytest.raises(Unavailable):
            _ = ledger.id
        await ledger.open()
        await ledger.close()


async def test_opening_an_open_sqlite_database_again_changes_nothing():
    ledger = SqliteLedger(None)
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    await ledger.open()
    assert await seen(ledger, "ana") == NOW
    await ledger.close()


async def test_closing_a_sqlite_database_waits_for_running_writes(tmp_path):
    ledger = SqliteLedger(tmp_path / "herenow.db")
    await ledger.open()
    saving = [asyncio.ensure_future(ledger.save_last_seen({f"user-{number}": NOW})) for number in range(10)]
    await asyncio.sleep(0)
    await ledger.close()
    await asyncio.gather(*saving)
    await ledger.open()
    assert len(await ledger.remembered([f"user-{number}" for number in range(10)])) == 10
    await ledger.close()


async def test_closing_a_sqlite_database_leaves_no_thread_and_no_extra_file(tmp_path):
    ledger = SqliteLedger(tmp_path / "herenow.db")
    await ledger.open()
    await asyncio.gather(*(ledger.remembered(["ana"]) for _ in range(10)))
    assert any(thread.name.startswith("herenow-ledger") for thread in threading.enumerate())
    await ledger.close()
    assert not any(thread.name.startswith("herenow-ledger") for thread in threading.enumerate())
    # The last close of an SQLite file in WAL mode removes its companion files.
    assert [file.name for file in tmp_path.iterdir()] == ["herenow.db"]


async def test_concurrent_sqlite_reads_share_a_connection_but_not_their_errors(ledger, monkeypatch):
    taken: list[object] = []

    def note(*taken_out):
        taken.append(taken_out)

    asked_for = ledger._users.remembered

    def fail_for_bo(connection, users):
        if "bo" in users:
            raise sqlite3.OperationalError("disk I/O error")
        return asked_for(connection, users)

    await ledger.save_last_seen({"ana": NOW, "cy": NOW})
    monkeypatch.setattr(ledger._users, "remembered", fail_for_bo)
    sqlalchemy.event.listen(sqlalchemy.Pool, "checkout", note)
    try:
        asked = [asyncio.ensure_future(ledger.remembered([user])) for user in ("ana", "bo", "cy", "dee")]
        await asyncio.sleep(0)
        asked[3].cancel()
        ana, bo, cy, dee = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Pool, "checkout", note)
    assert len(taken) == 1
    assert (ana, cy) == ({"ana": Remembered(NOW)}, {"cy": Remembered(NOW)})
    assert isinstance(bo, Unavailable)
    assert isinstance(dee, asyncio.CancelledError)


async def test_reads_started_before_a_sqlite_database_is_closed_are_answered(ledger):
    asked = [asyncio.ensure_future(ledger.remembered(["ana"])) for _ in range(3)]
    await asyncio.sleep(0)
    await ledger.close()
    assert await asyncio.gather(*asked) == [{}] * 3
    with pytest.raises(Unavailable):
        await ledger.remembered(["ana"])


async def test_no_sqlite_query_scans_a_whole_table(ledger, tmp_path):
    asked: list[str] = []

    def listen(driver, *_):  # on the driver itself: not every query goes through SQLAlchemy
        driver.set_trace_callback(asked.append)

    sqlalchemy.event.listen(sqlalchemy.Pool, "checkout", listen)
    try:
        await use_everything(ledger)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Pool, "checkout", listen)
    assert any("FROM json_each" in statement for statement in asked)
    apart = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "--", "DELETE FROM runs", "DELETE FROM open_marks ")
    looked = [statement for statement in asked if not statement.startswith(apart)]
    steps = [(step, statement) for statement, step in plans(tmp_path / "herenow.db", looked)]
    assert steps
    tables = (
        "last_seen",
        "choices",
        "preferences",
        "follows",
        "contacts",
        "members",
        "changes",
        "forth",
        "back",
        "blocks",
    )
    assert not [step for step in steps if step[0].startswith(tuple(f"SCAN {table}" for table in tables))]


async def test_an_open_sqlite_connection_sees_later_writes_and_does_not_block_checkpoints(ledger, tmp_path):
    other = SqliteLedger(tmp_path / "herenow.db")
    await other.open()
    for at in range(NOW, NOW + 20):  # more than there are threads that could have kept an old view
        await other.save_last_seen({"ana": at})
        await other.apply([contact("ana", f"friend{at}")])
        assert await ledger.remembered(["ana"]) == {"ana": Remembered(at)}
        assert f"friend{at}" in await ledger.contacts("ana", NOW)
        found = await ledger.pair_facts("ana", [f"friend{at}"], [], NOW, related=True, rooms=True)
        assert [relation.contact for relation in found.relations] == [True]
    await other.close()
    with sqlite3.connect(tmp_path / "herenow.db") as connection:
        [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert not busy


async def use_everything(ledger: SqliteLedger) -> None:
    rows: list[RelationRow] = [follow("ana", "bo"), contact("ana", "bo"), room("r", "ana")]
    await ledger.apply(rows)
    await ledger.apply([gone(row) for row in rows])
    await ledger.between("ana", ["bo"], NOW)
    await ledger.pair_facts("ana", ["bo"], ["ana"], NOW, related=True, rooms=True)
    await ledger.contacts("ana", NOW)
    await ledger.follows("ana", "bo")
    await ledger.is_member("r", "ana")
    await ledger.save_last_seen({"ana": NOW})
    await ledger.save_choices([Choice("ana", 1, Mode.BUSY)])
    await ledger.set_idle_after("ana", 60_000)
    await ledger.set_idle_after("ana", None)
    await ledger.remembered(["ana"])
    await ledger.open_marks("run", {"ana": 0}, ["bo"])
    await ledger.stamp_run("run", NOW)
    await ledger.changes_head()
    await ledger.changes(0, 10)
    await ledger.forget_changes(1)


def plans(path, asked):
    connection = sqlite3.connect(path)
    for statement in asked:
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            yield statement, row[3]
    connection.close()


async def test_a_second_server_on_a_sqlite_database_is_refused_while_the_first_one_runs(tmp_path):
    first, second = SqliteLedger(tmp_path / "h.db"), SqliteLedger(tmp_path / "h.db")
    await first.open()
    await second.open()
    await first.close_runs()
    await first.open_marks("run", {"ana": 0}, [])
    await first.stamp_run("run", 5)
    with pytest.raises(ConfigurationError, match="in use by another herenow serve"):
        await second.close_runs()
    assert await second.open_runs() == {"run": 5}
    await first.close()
    assert await second.close_runs() == 1
    await second.close()


async def test_a_new_sqlite_database_and_its_files_are_not_accessible_to_other_users_under_any_umask(tmp_path):
    before = os.umask(0)
    try:
        ledger = SqliteLedger(tmp_path / "herenow.db")
        await ledger.open()
        await ledger.close_runs()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        await ledger.close()
    finally:
        os.umask(before)
    assert modes.keys() >= {"herenow.db", "herenow.db-wal", "herenow.db-shm", "herenow.db-run"}
    assert set(modes.values()) == {0o660}


async def test_an_existing_sqlite_database_keeps_its_mode(ledger, tmp_path):
    (tmp_path / "herenow.db").chmod(0o640)
    await SqliteLedger(tmp_path / "herenow.db").schema()
    assert stat.S_IMODE((tmp_path / "herenow.db").stat().st_mode) == 0o640
