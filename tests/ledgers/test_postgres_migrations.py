"""The schema in PostgreSQL is created by the same migrations: atomic, by one process at a time."""

import asyncio
import re
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import OperationalError
from tests.postgres_server import open_postgres

from herenow.core.model import Mode, Source, Sourced
from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.postgres import postgres_ledger as postgres
from herenow.ledgers.postgres.schema_check import make_schema
from herenow.ledgers.sql import NEWEST, VERSION_TABLE, metadata, revisions
from herenow.ports import Choice
from herenow_testing.contracts.ledger import NOW, seen

ROOT = Path(__file__).parents[2]

OBJECTS = """
SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
"""


@pytest.fixture
async def empty(server):
    yield await server.make_database("empty")
    await server.drop_database("empty")


async def objects(server, database="empty"):
    return {name for (name,) in await server.sql(OBJECTS, database)}


async def at(ledger, revision):
    """Bring an empty database to an older schema."""
    async with ledger._separate_connection() as connection, revisions.exclusive():
        await connection.run_sync(make_schema)
        await connection.run_sync(revisions.upgrade_exclusively, revision)
        await connection.commit()


async def test_migrating_an_empty_postgresql_database_produces_the_tables_defined_in_the_code(ledger):
    def compare(connection):
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return compare_metadata(context, metadata)

    def compare_after_a_loss(connection):
        connection.exec_driver_sql("DROP INDEX follows_of_b")
        return compare(connection)

    assert await ledger._write(compare) == []
    assert len(await ledger._write(compare_after_a_loss)) == 1
    options = await ledger._read(
        lambda c: c.exec_driver_sql("SELECT reloptions FROM pg_class WHERE relname = 'last_seen'").scalar_one()
    )
    assert options == ["fillfactor=80"]


async def test_every_id_column_in_a_postgresql_key_is_sorted_by_bytes(ledger):
    keys = """
    SELECT c.relname || '.' || a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = 'herenow'::regnamespace AND t.typname = 'text' AND (l.collname = 'C') = %s
    """
    plain, others = [
        await ledger._read(lambda c, s=keys % is_plain: c.exec_driver_sql(s).scalars().all())
        for is_plain in ("true", "false")
    ]
    assert {"last_seen.user", "follows.a", "follows.b", "blocks.blocked"} <= set(plain)
    assert others == []


async def test_reading_the_schema_version_of_an_empty_postgresql_database_creates_no_tables(server, empty):
    assert await open_postgres(empty).schema() == (None, NEWEST)
    assert await objects(server) == set()


async def test_a_postgresql_database_can_be_migrated_without_being_opened(empty):
    ledger = open_postgres(empty)
    await ledger.migrate()
    assert await ledger.schema() == (NEWEST, NEWEST)
    with pytest.raises(Unavailable):
        _ = ledger.id
    await ledger.open()
    assert ledger.id
    await ledger.close()


async def test_tables_of_the_application_in_the_same_postgresql_database_are_not_changed(server, empty):
    await server.sql("CREATE TABLE follows (whatever int)", "empty")
    await server.sql("CREATE TABLE meta (whatever int)", "empty")
    ledger = open_postgres(empty)
    await ledger.open()
    await ledger.close()
    assert await server.sql("SELECT * FROM public.follows", "empty") == []
    tables = await server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", "empty")
    assert set(tables) == {("follows",), ("meta",)}


async def test_a_postgresql_database_with_an_older_schema_is_refused_until_it_is_migrated(server, empty):
    ledger = open_postgres(empty)
    await at(ledger, "0001")
    await server.sql("INSERT INTO herenow.preferences VALUES ('ana', 60000)", "empty")
    await server.sql("INSERT INTO herenow.runs VALUES ('run', 5)", "empty")
    await server.sql("INSERT INTO herenow.open_marks VALUES ('run', 'bo')", "empty")
    before = await objects(server)
    with pytest.raises(ConfigurationError, match=rf"has schema '0001'.*needs '{NEWEST}': run herenow migrate"):
        await ledger.open()
    assert await ledger.schema() == ("0001", NEWEST)
    assert await objects(server) == before
    await ledger.migrate()
    await ledger.open()
    assert (await ledger.remembered(["ana"]))["ana"].idle_after == 60_000
    assert await ledger.preferences(["ana"]) == {}
    assert (await ledger.remembered(["bo"]))["bo"].last_seen == 5
    assert await ledger.close_runs() == 1
    assert (await ledger.remembered(["bo"]))["bo"].last_seen == 5
    await ledger.close()


async def test_a_postgresql_database_can_go_back_to_the_schema_before_status_sources_and_forward_again(server, empty):
    """By the statements on the page about the database."""
    ledger = open_postgres(empty)
    await ledger.open()
    call = Sourced(Source.CALL, Mode.BUSY, gives_mode=True)
    await ledger.save_choices([Choice("ana", 1, Mode.BUSY, sources=(call,))])
    assert (await ledger.remembered(["ana"]))["ana"].choice == Choice("ana", 1, Mode.BUSY, sources=(call,))
    await ledger.close()
    page = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    for statement in re.findall(
        r"^(?:(?:DROP|ALTER) TABLE herenow\.|UPDATE herenow\.herenow_schema ).*;$", page, re.MULTILINE
    ):
        await server.sql(statement, "empty")
    assert await ledger.schema() == ("0003", NEWEST)
    await ledger.migrate()
    await ledger.open()
    assert (await ledger.remembered(["ana"]))["ana"].choice == Choice("ana", 1, Mode.BUSY)
    await ledger.close()


async def test_a_postgresql_database_with_a_newer_schema_is_refused_and_not_changed(server, empty):
    ledger = open_postgres(empty)
    await ledger.migrate()
    await server.sql(f"UPDATE herenow.{VERSION_TABLE} SET version_num = '9999'", "empty")
    await server.sql("ALTER TABLE herenow.meta ADD COLUMN from_the_future text", "empty")
    for ask in (ledger.open, ledger.migrate):
        with pytest.raises(ConfigurationError, match=rf"schema '9999'.*none newer than '{NEWEST}'"):
            await ask()
    assert await ledger.schema() == ("9999", NEWEST)
    assert await server.sql("SELECT count(from_the_future) FROM herenow.meta", "empty") == [(0,)]


@pytest.mark.parametrize("verb", ["open", "migrate"])
async def test_a_postgresql_migration_that_fails_midway_is_rolled_back(server, empty, verb):
    def fail(_connection, _cursor, statement, *_):
        if "CREATE TABLE members" in statement:
            raise OperationalError(statement, None, Exception("the disk gave up"))

    ledger = open_postgres(empty)
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", fail)
    try:
        with pytest.raises(Unavailable, match="the disk gave up"):
            await getattr(ledger, verb)()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", fail)
    assert await objects(server) == set()
    assert await server.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'herenow'", "empty") == []
    await ledger.open()
    assert await ledger.schema() == (NEWEST, NEWEST)
    await ledger.close()


async def test_a_migration_is_rolled_back_when_the_postgresql_server_is_killed(fragile, fragile_database):
    def kill(_connection, _cursor, statement, *_):
        if "CREATE TABLE members" in statement:
            fragile.kill()

    ledger = open_postgres(fragile_database)
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", kill)
    try:
        with pytest.raises(Unavailable):
            await ledger.open()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", kill)
    fragile.start()
    name = fragile_database.rpartition("/")[2]
    assert await objects(fragile, name) == set()
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    assert await seen(ledger, "ana") == NOW
    await ledger.close()


async def test_concurrent_migrations_of_one_postgresql_database_run_once(server, empty):
    ledgers = [open_postgres(empty) for _ in range(4)]
    await at(ledgers[0], "0001")
    [(made,)] = await server.sql("SELECT value FROM herenow.meta", "empty")
    await asyncio.gather(*(ledger.migrate() for ledger in ledgers))
    assert await ledgers[0].schema() == (NEWEST, NEWEST)
    assert await server.sql("SELECT value FROM herenow.meta", "empty") == [(made,)]


async def test_a_postgresql_migration_waits_a_limited_time_for_another_process_that_migrates(
    server, empty, monkeypatch
):
    monkeypatch.setitem(postgres.MIGRATING, "lock_timeout", 100)
    ledger = open_postgres(empty)
    async with ledger._separate_connection() as busy:
        await busy.run_sync(make_schema)
        for ask in (open_postgres(empty).open, open_postgres(empty).migrate):
            with pytest.raises(Unavailable, match="another process holds a lock for too long"):
                await ask()
    await ledger.open()
    await ledger.close()


async def test_the_error_of_a_postgresql_migration_is_one_line_without_the_password(server, empty):
    ledger = open_postgres(empty.replace("postgres@", "postgres:hunter2@"))
    await at(ledger, "0002")
    with pytest.raises(ConfigurationError) as refusal:
        await ledger.open()
    assert re.fullmatch(r"The database postgresql://postgres@127\.0\.0\.1:\d+/empty has .*\.", str(refusal.value))
