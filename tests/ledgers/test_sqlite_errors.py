"""An SQLite ledger when the file, the disk or another process fails."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from herenow.core.visibility import PreferencesEdit
from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.sqlite import SqliteLedger
from herenow.ports import BlockRow, Choice, Void
from herenow_testing.contracts.ledger import NOW, follow, seen


@pytest.fixture
def path(tmp_path):
    return tmp_path / "herenow.db"


@pytest.fixture
async def ledger(path):
    ledger = SqliteLedger(path, busy_timeout=0.05)
    await ledger.open()
    yield ledger
    await ledger.close()


# --- The disk


async def limit_pages(ledger, pages):
    """Simulates a full disk for SQLite."""
    await ledger._write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar())


async def test_a_full_disk_under_a_sqlite_database_raises_unavailable_and_damages_no_data(ledger):
    await ledger.save_last_seen({"ana": NOW})
    await limit_pages(ledger, 1)  # SQLite uses at least the present size
    many = {f"user-{number}": NOW for number in range(5_000)}
    with pytest.raises(Unavailable, match="full"):
        await ledger.save_last_seen(many)
    with pytest.raises(Unavailable, match="full"):
        await ledger.apply([follow("me", user) for user in many])
    assert await ledger.remembered(list(many)) == {}
    assert await ledger.changes(0, 10) == ([], 0)
    assert await seen(ledger, "ana") == NOW

    await limit_pages(ledger, 1_000_000)
    await ledger.save_last_seen(many)
    assert len(await ledger.remembered(list(many))) == 5_000


async def test_damage_of_the_sqlite_file_found_while_running_raises_unavailable(ledger, path):
    await ledger.save_last_seen({f"user-{number}": NOW for number in range(20_000)})
    await ledger.close()
    await ledger.open()
    damage(path, after_page=4)
    with pytest.raises(Unavailable, match="malformed"):
        await ledger.remembered([f"user-{number}" for number in range(20_000)])


# --- The file is deleted or replaced

WRITES = {
    "block": lambda ledger: ledger.block(BlockRow("ana", "bo", NOW)),
    "relation": lambda ledger: ledger.apply([follow("ana", "bo")]),
    "preferences": lambda ledger: ledger.set_preferences("ana", PreferencesEdit(public=True), NOW, None),
    "revocation": lambda ledger: ledger.void(Void("ana", NOW, NOW + 1)),
    "mode": lambda ledger: ledger.save_choices([Choice("ana", 1)]),
    "last seen": lambda ledger: ledger.save_last_seen({"ana": NOW + 1}),
}


@pytest.mark.parametrize("how", ["deleted", "replaced", "emptied"])
@pytest.mark.parametrize("write", WRITES)
async def test_writes_are_refused_when_the_sqlite_file_was_deleted_replaced_or_emptied(ledger, path, write, how):
    await ledger.save_last_seen({"ana": NOW})
    path.unlink()
    if how == "replaced":
        other = SqliteLedger(path)
        await other.open()
        await other.close()
    elif how == "emptied":
        path.touch()
    with pytest.raises(Unavailable, match="replaced" if how == "replaced" else "deleted"):
        await WRITES[write](ledger)
    assert path.exists() == (how != "deleted")


async def test_reads_notice_that_the_sqlite_file_was_deleted_and_do_not_create_a_new_one(ledger, path):
    await ledger.save_last_seen({"ana": NOW})
    assert await seen(ledger, "ana") == NOW
    path.unlink()
    with pytest.raises(Unavailable, match="move the same file back"):
        await ledger.changes(0, 10)
    many = await asyncio.gather(*(ledger.remembered(["ana"]) for _ in range(300)), return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in many)
    assert not path.exists()


async def test_reads_work_again_after_the_sqlite_file_was_moved_back(ledger, path):
    await ledger.save_last_seen({"ana": NOW})
    path.rename(path.with_name("aside"))
    with pytest.raises(Unavailable):
        await ledger.changes(0, 10)
    with pytest.raises(Unavailable):
        await ledger.remembered(["ana"])
    path.with_name("aside").rename(path)
    assert await ledger.changes(0, 10) == ([], 0)
    assert await seen(ledger, "ana") == NOW


@pytest.mark.parametrize("together", [False, True])
async def test_a_sqlite_database_whose_file_is_moved_back_works_again_and_lost_nothing(ledger, path, together):
    """`together`: with the write-ahead log."""
    await ledger.save_last_seen({"ana": NOW})
    files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))][: 3 if together else 1]
    for file in files:
        file.rename(file.with_name("aside-" + file.name))
    with pytest.raises(Unavailable, match="deleted or moved"):
        await ledger.save_last_seen({"bo": NOW})
    for file in files:
        file.with_name("aside-" + file.name).rename(file)
    await ledger.save_last_seen({"bo": NOW + 1})
    assert await seen(ledger, "ana") == NOW
    await ledger.close()
    await ledger.open()
    assert await seen(ledger, "ana") == NOW
    assert await seen(ledger, "bo") == NOW + 1


async def test_a_sqlite_database_can_be_closed_and_opened_again_after_its_file_was_deleted(ledger, path):
    await ledger.save_last_seen({"ana": NOW})
    path.unlink()
    with pytest.raises(Unavailable):
        await ledger.save_last_seen({"bo": NOW})
    await ledger.close()
    assert not path.exists()
    await ledger.open()
    assert await ledger.remembered(["ana"]) == {}
    await ledger.save_last_seen({"bo": NOW})


# --- Other processes


@pytest.fixture
def other(ledger, path):
    """A connection of another process, as far as SQLite can tell."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def test_a_sqlite_lock_of_another_process_blocks_writes_but_not_reads(ledger, other):
    await ledger.save_last_seen({"ana": NOW})
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await ledger.save_last_seen({"ana": NOW + 1})
    with pytest.raises(Unavailable, match="locked"):
        await ledger.apply([follow("ana", "bo")])
    assert await seen(ledger, "ana") == NOW
    other.execute("ROLLBACK")
    await ledger.save_last_seen({"ana": NOW + 1})
    assert await seen(ledger, "ana") == NOW + 1


async def test_writers_queued_for_a_locked_sqlite_file_share_one_waiting_time(path):
    ledger = SqliteLedger(path, busy_timeout=0.2)
    await ledger.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        answers = await asyncio.gather(
            *(ledger.save_last_seen({f"user-{number}": NOW}) for number in range(50)), return_exceptions=True
        )
        assert time.monotonic() - began < 5  # one after another they would take 10 s
    assert [type(answer) for answer in answers] == [Unavailable] * 50
    await ledger.save_last_seen({"ana": NOW})
    await ledger.close()


async def test_writes_wait_for_a_sqlite_lock_that_is_released_in_time(path):
    ledger = SqliteLedger(path, busy_timeout=30)
    await ledger.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = [asyncio.ensure_future(ledger.save_last_seen({f"user-{number}": NOW})) for number in range(3)]
        await asyncio.sleep(0)
        other.execute("COMMIT")
    await asyncio.gather(*writing)
    assert len(await ledger.remembered(["user-0", "user-1", "user-2"])) == 3
    await ledger.close()


async def test_opening_a_locked_sqlite_database_raises_unavailable_and_not_a_configuration_error(ledger, other, path):
    other.execute("BEGIN IMMEDIATE")
    late = SqliteLedger(path, busy_timeout=0.05)
    with pytest.raises(Unavailable, match="locked"):
        await late.open()
    other.execute("ROLLBACK")
    await late.open()
    await late.close()


# --- Invalid files


async def refused(ledger):
    with pytest.raises(ConfigurationError) as refusal:
        await ledger.open()
    with pytest.raises(Unavailable):
        await ledger.remembered(["ana"])
    await ledger.close()
    return str(refusal.value)


async def test_opening_a_file_that_is_not_a_sqlite_database_is_refused(path):
    path.write_text("Dear diary, " * 1_000)
    sentence = await refused(SqliteLedger(path))
    assert f"{path} is not an SQLite database" in sentence
    assert path.read_text().startswith("Dear diary")


async def test_opening_a_damaged_sqlite_file_is_refused(ledger, path):
    await ledger.close()
    damage(path, after_page=0)
    assert f"{path} is damaged: restore a copy" in await refused(SqliteLedger(path))


async def test_opening_a_sqlite_file_that_was_cut_short_is_refused(ledger, path):
    await ledger.close()
    os.truncate(path, 4_096)
    assert f"{path} is damaged: restore a copy" in await refused(SqliteLedger(path))


async def test_a_sqlite_database_of_another_program_is_refused_and_not_changed(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE auth_user (id INTEGER)")
    before = path.read_bytes()
    sentence = await refused(SqliteLedger(path))
    assert str(path) in sentence
    assert "'auth_user'" in sentence
    with pytest.raises(ConfigurationError):
        await SqliteLedger(path).schema()
    assert path.read_bytes() == before


async def test_opening_a_sqlite_database_in_a_missing_directory_is_refused_with_advice_to_create_it(tmp_path):
    path = tmp_path / "not" / "there" / "herenow.db"
    sentence = await refused(SqliteLedger(path))
    assert str(path) in sentence
    assert f"create the directory {path.parent}" in sentence
    for ask in (SqliteLedger(path).schema, SqliteLedger(path).migrate):
        with pytest.raises(ConfigurationError):
            await ask()


async def test_a_directory_in_place_of_the_sqlite_file_is_refused(tmp_path):
    assert f"{tmp_path} is a directory" in await refused(SqliteLedger(tmp_path))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory where nobody may create files")
async def test_opening_a_sqlite_database_at_a_path_that_cannot_be_created_is_refused():
    sentence = await refused(SqliteLedger("/proc/herenow.db"))
    assert "/proc/herenow.db cannot be written or created" in sentence


OPEN_AS_NOBODY = """
import asyncio, os, sys
from herenow.errors import ConfigurationError
from herenow.ledgers.sqlite import SqliteLedger
if os.getuid() == 0:
    os.setuid(65534)
try:
    asyncio.run(SqliteLedger(sys.argv[1]).open())
except ConfigurationError as error:
    print(error)
"""


async def test_opening_a_read_only_sqlite_file_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "herenow.db")
        await SqliteLedger(path).migrate()
        said = open_as_nobody(path)
    assert f"{path} cannot be written or created: give the user" in said


def open_as_nobody(path):
    path.chmod(0o444)
    path.parent.chmod(0o555)
    opening = subprocess.run([sys.executable, "-c", OPEN_AS_NOBODY, path], capture_output=True, text=True)
    path.parent.chmod(0o755)
    return opening.stdout + opening.stderr


def damage(path, after_page):
    """Overwrites pages; the file header (its first 100 bytes) stays valid."""
    content = bytearray(path.read_bytes())
    start = max(100, after_page * 4_096)
    content[start:] = b"\xa5" * (len(content) - start)
    path.write_bytes(content)


# --- kill -9

WRITE_UNTIL_KILLED = """
import asyncio, sys
from herenow.ledgers.sqlite import SqliteLedger
from herenow.ports import RelationRow

async def main():
    ledger = SqliteLedger(sys.argv[1])
    await ledger.open()
    batch = 0
    while True:
        batch += 1
        users = [f"user-{batch}-{number}" for number in range(100)]
        await ledger.save_last_seen({user: batch for user in users})
        await ledger.apply([RelationRow("follow", "me", user) for user in users]
                         + [RelationRow("follow", user, "me") for user in users])
        print(batch, flush=True)

asyncio.run(main())
"""


async def test_kill_9_loses_no_acknowledged_sqlite_write_and_leaves_no_partial_write(path):
    await SqliteLedger(path).migrate()
    acknowledged = write_until_killed(path, batches=15)
    assert acknowledged >= 15
    ledger = SqliteLedger(path)
    await ledger.open()
    batches = [[f"user-{batch}-{number}" for number in range(100)] for batch in range(1, acknowledged + 3)]
    known = [len(await ledger.remembered(users)) for users in batches]
    assert known[:acknowledged] == [100] * acknowledged
    assert set(known[acknowledged:]) <= {0, 100}
    friends = await ledger.contacts("me", NOW)
    assert set(friends) >= {user for users in batches[:acknowledged] for user in users}
    assert len(friends) % 100 == 0
    told, _ = await ledger.changes(0, 1_000_000)
    assert {change.b if change.a == "me" else change.a for change in told} == set(friends)
    await ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def write_until_killed(path, batches):
    """Returns the number of acknowledged batches."""
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(batches):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        return batches + len(writer.stdout.read().splitlines())
