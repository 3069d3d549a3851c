"""The schema of a ledger is created by migrations: atomic, never backwards."""

import sqlite3
from contextlib import closing

import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from sqlalchemy.exc import OperationalError

from herenow.core.model import Mode, Source, Sourced
from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.sql import NEWEST, VERSION_TABLE, metadata, revisions
from herenow.ledgers.sqlite import SqliteLedger
from herenow.ports import Choice


@pytest.fixture
def path(tmp_path):
    return tmp_path / "herenow.db"


def test_the_newest_migration_file_is_the_schema_version_named_in_the_code():
    assert ScriptDirectory.from_config(revisions._config()).get_heads() == [NEWEST]


async def test_migrating_an_empty_sqlite_database_produces_the_tables_defined_in_the_code(path, tmp_path):
    await SqliteLedger(path).migrate()
    plain = tmp_path / "plain.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{plain}")
    metadata.create_all(engine)
    engine.dispose()
    migrated = definitions(path)
    assert migrated.pop(VERSION_TABLE)
    migrated.pop(f"sqlite_autoindex_{VERSION_TABLE}_1", None)
    assert migrated == definitions(plain)


async def test_a_migration_keeps_the_data_of_an_older_sqlite_database(path):
    """Written by the first schema, read by the newest."""
    with closing(sqlite3.connect(path)) as connection:
        engine = sqlalchemy.create_engine("sqlite://", creator=lambda: connection)
        with engine.connect() as old:
            revisions.upgrade(old, "0001")
            old.exec_driver_sql("INSERT INTO preferences (user, idle_after) VALUES ('ana', 60000)")
            old.exec_driver_sql("INSERT INTO members (room, user) VALUES ('r', 'ana')")
            old.exec_driver_sql("INSERT INTO runs (run, at) VALUES ('run', 5)")
            old.exec_driver_sql("INSERT INTO open_marks (run, user) VALUES ('run', 'bo')")
            old.commit()
    ledger = SqliteLedger(path)
    await ledger.open()
    assert (await ledger.remembered(["ana"]))["ana"].idle_after == 60_000
    assert await ledger.preferences(["ana"]) == {}
    assert await ledger.is_member("r", "ana")
    assert (await ledger.remembered(["bo"]))["bo"].last_seen == 5
    assert await ledger.close_runs() == 1
    assert (await ledger.remembered(["bo"]))["bo"].last_seen == 5
    await ledger.close()


async def test_an_older_node_that_knows_no_status_sources_can_write_modes_and_keeps_the_stored_sources(path):
    """A node that still runs during a rolling upgrade: its statements do not name the new column."""
    ledger = SqliteLedger(path)
    await ledger.open()
    call = Sourced(Source.CALL, Mode.BUSY, gives_mode=True)
    await ledger.save_choices([Choice("ana", 1, Mode.BUSY, sources=(call,))])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO choices (user, version, mode, mode_until, custom_text, custom_emoji, custom_until) "
            "VALUES ('ana', 2, 2, NULL, NULL, NULL, NULL), ('bo', 1, 1, NULL, NULL, NULL, NULL) ON CONFLICT (user) "
            "DO UPDATE SET version = excluded.version, mode = excluded.mode WHERE excluded.version > choices.version"
        )
        connection.commit()
    known = await ledger.remembered(["ana", "bo"])
    assert known["ana"].choice == Choice("ana", 2, Mode.AWAY, sources=(call,))
    assert known["bo"].choice == Choice("bo", 1, Mode.BUSY)
    await ledger.close()


async def test_a_status_whose_stored_sources_are_unreadable_is_loaded_without_sources(path):
    ledger = SqliteLedger(path)
    await ledger.open()
    await ledger.save_choices([Choice(user, 1, Mode.BUSY) for user in ("ana", "bo")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE choices SET sources = CASE user WHEN 'ana' THEN '!' ELSE 'DQ==' END")
        connection.commit()
    known = await ledger.remembered(["ana", "bo"])
    assert {user: each.choice for user, each in known.items()} == {
        user: Choice(user, 1, Mode.BUSY) for user in ("ana", "bo")
    }
    await ledger.close()


BACK_TO_0003 = (
    *(f"ALTER TABLE preferences DROP COLUMN {column}" for column in ("shown_at", "shown_last_seen", "shared_at")),
    "DROP TABLE late_choices",
    "ALTER TABLE choices DROP COLUMN sources",
    f"UPDATE {VERSION_TABLE} SET version_num = '0003'",
)


async def test_going_back_to_the_schema_before_status_sources_keeps_the_mode_of_the_user(path):
    """As on the page about the database. The schema after it is that of the version before."""
    ledger = SqliteLedger(path)
    await ledger.open()
    call = Sourced(Source.CALL, Mode.BUSY, gives_mode=True)
    await ledger.save_choices([Choice("ana", 1, Mode.BUSY, sources=(call,))])
    await ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        for statement in BACK_TO_0003:
            connection.execute(statement)
        connection.commit()
    assert await ledger.schema() == ("0003", NEWEST)
    await ledger.open()
    assert (await ledger.remembered(["ana"]))["ana"].choice == Choice("ana", 1, Mode.BUSY)
    await ledger.close()


async def test_reading_the_schema_version_of_a_missing_sqlite_database_creates_no_file(path):
    assert await SqliteLedger(path).schema() == (None, NEWEST)
    assert not path.exists()
    assert await SqliteLedger(None).schema() == (None, NEWEST)


async def test_an_empty_sqlite_file_is_opened_as_an_empty_database(path):
    path.touch()
    ledger = SqliteLedger(path)
    assert await ledger.schema() == (None, NEWEST)
    await ledger.open()
    assert await ledger.schema() == (NEWEST, NEWEST)
    await ledger.close()


async def test_a_sqlite_database_can_be_migrated_without_being_opened(path):
    ledger = SqliteLedger(path)
    await ledger.migrate()
    assert await ledger.schema() == (NEWEST, NEWEST)
    with pytest.raises(Unavailable):
        _ = ledger.id
    await ledger.open()
    assert ledger.id
    await ledger.close()


async def test_a_sqlite_database_with_a_newer_schema_is_refused_and_not_changed(path):
    await SqliteLedger(path).migrate()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        connection.execute("ALTER TABLE meta ADD COLUMN from_the_future TEXT")
        connection.commit()
    before = definitions(path)
    ledger = SqliteLedger(path)
    with pytest.raises(ConfigurationError, match=rf"schema '9999'.*none newer than '{NEWEST}'.*or a newer one\."):
        await ledger.open()
    with pytest.raises(ConfigurationError):
        await ledger.migrate()
    assert await ledger.schema() == ("9999", NEWEST)
    assert definitions(path) == before


async def test_a_sqlite_migration_that_fails_midway_is_rolled_back(path):
    def fail(_connection, _cursor, statement, *_):
        if "CREATE TABLE members" in statement:
            raise OperationalError(statement, None, sqlite3.OperationalError("disk I/O error"))

    ledger = SqliteLedger(path)
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", fail)
    try:
        with pytest.raises(Unavailable, match="I/O error"):
            await ledger.open()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", fail)
    assert definitions(path) == {}
    await ledger.open()
    assert await ledger.schema() == (NEWEST, NEWEST)
    await ledger.close()


def definitions(path):
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master")
        return {
            name: " ".join((sql or "").split()) for name, sql in found
        }  # a column added later has no line of its own
