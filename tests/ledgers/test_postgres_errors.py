"""A PostgreSQL ledger when the server, the network, rights or the disk fail."""

import asyncio
import os
import re
import subprocess

import pytest
import sqlalchemy
from tests.ports import free_port
from tests.postgres_server import PATIENCE, PostgresServer, open_postgres

from herenow.errors import ConfigurationError, Unavailable, UnknownOutcome
from herenow.ledgers.postgres import Deadlines
from herenow.ledgers.postgres import postgres_ledger as postgres
from herenow.ledgers.postgres.postgres_dialect import LOCKS
from herenow.ports import BlockRow, Choice, LedgerChange, Void
from herenow_testing.contracts.ledger import NOW, follow, seen

pytestmark = pytest.mark.xdist_group("postgres in trouble")


def named(url):
    return url.rpartition("/")[2]


def impatient(url):
    """A ledger with short deadlines."""
    return open_postgres(url, Deadlines(read=0.3, write=0.3, at_length=60))


async def eventually(call):
    """Repeats the call until the server is reachable again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(0.05)


async def refused(url, kind=ConfigurationError):
    """The error text of every way to open the ledger; asserts that they agree."""
    sentences = []
    for verb in ("open", "schema", "migrate"):
        ledger = open_postgres(url)
        with pytest.raises(kind) as refusal:
            await getattr(ledger, verb)()
        sentences.append(str(refusal.value))
        await ledger.close()
    sentence = sentences[0]
    assert set(sentences) == {sentence}
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert "hunter2" not in sentence
    return sentence


# --- Wrong names and parameters


@pytest.fixture
async def guarded(server, database):
    """URL of a user who needs a password."""
    await server.sql("CREATE ROLE guarded LOGIN PASSWORD 'p@ss/word' SUPERUSER")
    yield server.url(named(database), "guarded:p%40ss%2Fword")
    await server.sql("REASSIGN OWNED BY guarded TO postgres")
    await server.sql("DROP ROLE guarded")


async def test_a_percent_encoded_password_in_a_postgresql_url_is_accepted(guarded):
    ledger = open_postgres(guarded)
    await ledger.open()
    await ledger.close()


async def test_the_error_about_a_wrong_postgresql_password_does_not_show_it(guarded):
    sentence = await refused(guarded.replace("p%40ss%2Fword", "hunter2"))
    assert re.match(r"The database postgresql://guarded@127\.0\.0\.1:\d+/ledger_\d+ refused the password", sentence)


async def test_opening_a_postgresql_database_without_the_needed_password_names_the_password_as_cause(
    guarded, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "refused the password" in await refused(guarded.replace(":p%40ss%2Fword", ""))


async def test_opening_a_postgresql_database_as_an_unknown_or_rejected_user_names_the_user_as_cause(server, database):
    assert "rejects this user" in await refused(server.url(named(database), "nobody_i_know:hunter2"))
    await server.sql("CREATE ROLE barred LOGIN")
    assert "rejects this user" in await refused(server.url(named(database), "barred:hunter2"))
    await server.sql("DROP ROLE barred")


async def test_the_error_about_a_missing_postgresql_database_advises_to_create_it(server):
    sentence = await refused(server.url("nowhere", "postgres:hunter2"))
    assert "/nowhere does not exist: create it" in sentence


async def test_a_refused_postgresql_connection_raises_unavailable(server):
    sentence = await refused(f"postgresql://ana:hunter2@127.0.0.1:{free_port()}/x", Unavailable)
    assert re.search(r"postgresql://ana@127\.0\.0\.1:\d+/x cannot be used: Connection refused\.", sentence)


async def test_the_error_about_an_unknown_postgresql_host_names_the_host(server):
    sentence = await refused("postgresql://ana:hunter2@no-such-host.invalid/x", Unavailable)
    assert "no-such-host.invalid/x cannot be used" in sentence


async def test_opening_a_database_on_a_server_that_is_not_postgresql_raises_unavailable(server):
    async def hello(_reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    sentence = await refused(f"postgresql://ana:hunter2@127.0.0.1:{port}/x", Unavailable)
    assert "cannot be used" in sentence
    other.close()


@pytest.mark.parametrize("query", ["no_such_parameter=1", "sslmode=hunter2", "connect_timeout=x"])
async def test_an_invalid_parameter_of_a_postgresql_url_is_refused(database, query):
    assert "parameter" in await refused(f"{database}?{query}")


async def test_a_unix_socket_can_be_used_as_postgresql_host(server, database):
    ledger = open_postgres(f"postgresql://postgres@/{named(database)}?host={server.data}&port={server.port}")
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    await ledger.close()


async def test_parameters_of_a_postgresql_url_reach_the_database_driver(database):
    ledger = open_postgres(f"{database}?sslmode=disable&work_mem=1MB")
    await ledger.open()
    assert await ledger._read(lambda c: c.exec_driver_sql("SHOW work_mem").scalar_one()) == "1MB"
    await ledger.close()


async def test_a_postgresql_database_with_another_encoding_than_utf_8_is_refused(server):
    await server.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    assert "create the database with the encoding UTF8" in await refused(server.url("ascii"))
    await server.drop_database("ascii")


# --- Rights


@pytest.fixture
async def clerk(server):
    """A user who owns nothing."""
    await server.sql("CREATE ROLE clerk LOGIN")
    yield "clerk"
    await server.sql("DROP ROLE clerk")


async def test_a_postgresql_user_without_the_right_to_create_a_schema_is_refused(server, clerk):
    url = await server.make_database("not_mine")
    ledger = open_postgres(server.url("not_mine", clerk))
    for verb in (ledger.open, ledger.migrate):
        with pytest.raises(ConfigurationError, match=r"enough rights: docs/ledger\.md says.*permission denied"):
            await verb()
    assert await open_postgres(url).schema() == (None, (await open_postgres(url).schema())[1])
    await server.drop_database("not_mine")


async def test_a_postgresql_user_without_rights_to_existing_tables_is_refused(server, database, clerk):
    name = named(database)
    ledger = open_postgres(server.url(name, clerk))
    steps = [
        ("SELECT 1", "may not use the schema herenow"),
        ("GRANT USAGE ON SCHEMA herenow TO clerk", "enough rights"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA herenow TO clerk", r"read and write herenow\.blocks"),
        (
            "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA herenow TO clerk",
            r"read and write herenow\.changes_id_seq",
        ),
    ]
    for grant, sentence in steps:
        await server.sql(grant, name)
        with pytest.raises(ConfigurationError, match=sentence):
            await ledger.open()
    await server.sql("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA herenow TO clerk", name)
    await ledger.open()
    await ledger.apply([follow("ana", "bo")])
    await ledger.save_last_seen({"ana": NOW})
    assert await ledger.close_runs() == 0
    assert await seen(ledger, "ana") == NOW
    await ledger.close()
    await server.sql("DROP OWNED BY clerk", name)


async def test_postgresql_rights_revoked_while_running_raise_unavailable_until_they_are_restored(
    server, database, clerk
):
    name = named(database)
    ledger = open_postgres(server.url(name, clerk))
    grant = "ALL TABLES IN SCHEMA herenow"
    await server.sql("GRANT USAGE ON SCHEMA herenow TO clerk", name)
    await server.sql("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA herenow TO clerk", name)
    await server.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {grant} TO clerk", name)
    await ledger.open()
    await server.sql(f"REVOKE ALL ON {grant} FROM clerk", name)
    with pytest.raises(Unavailable, match="its user lacks the right"):
        await ledger.remembered(["ana"])
    with pytest.raises(Unavailable, match="its user lacks the right"):
        await ledger.save_last_seen({"ana": NOW})
    await server.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {grant} TO clerk", name)
    await ledger.save_last_seen({"ana": NOW})
    await ledger.close()
    await server.sql("DROP OWNED BY clerk", name)


async def test_a_postgresql_database_that_forbids_pg_control_system_is_usable(server, database, clerk):
    name = named(database)
    for what in ("SCHEMA herenow", "ALL TABLES IN SCHEMA herenow", "ALL SEQUENCES IN SCHEMA herenow"):
        await server.sql(f"GRANT ALL ON {what} TO clerk", name)
    await server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC", name)
    ledger = open_postgres(server.url(name, clerk))
    await ledger.open()
    await ledger.apply([follow("ana", "bo")])
    assert (await ledger.changes(0, 10))[0] == [LedgerChange("relation", "ana", "bo")]
    await ledger.close()
    await server.sql("DROP OWNED BY clerk", name)


async def test_calls_raise_unavailable_while_the_postgresql_schema_is_missing(server, database, ledger):
    await server.sql("ALTER SCHEMA herenow RENAME TO elsewhere", named(database))
    with pytest.raises(Unavailable, match="its tables have changed"):
        await ledger.remembered(["ana"])
    with pytest.raises(Unavailable, match="its tables have changed"):
        await ledger.save_last_seen({"ana": NOW})
    await server.sql("ALTER SCHEMA elsewhere RENAME TO herenow", named(database))
    await ledger.save_last_seen({"ana": NOW})


# --- Read-only and standby servers


async def test_a_read_only_postgresql_database_is_refused_at_the_start(server, database):
    await server.sql(f"ALTER DATABASE {named(database)} SET default_transaction_read_only = on")
    ledger = open_postgres(database)
    with pytest.raises(ConfigurationError, match="is read-only: name a database that can be written"):
        await ledger.open()
    empty = await server.make_database("read_only")
    await server.sql("ALTER DATABASE read_only SET default_transaction_read_only = on")
    for verb in (open_postgres(empty).open, open_postgres(empty).migrate):
        with pytest.raises(ConfigurationError, match="is read-only"):
            await verb()
    assert (await open_postgres(empty).schema())[0] is None
    await server.drop_database("read_only")


async def test_a_postgresql_database_that_becomes_read_only_is_still_read(server, database, ledger):
    await ledger.save_last_seen({"ana": NOW})
    await server.sql(f"ALTER DATABASE {named(database)} SET default_transaction_read_only = on")
    await hang_up(server, database)
    assert await eventually(lambda: seen(ledger, "ana")) == NOW
    for write in (ledger.save_last_seen({"ana": NOW + 1}), ledger.block(BlockRow("ana", "bo", NOW))):
        with pytest.raises(Unavailable, match="it is read-only"):
            await write
    await server.sql(f"ALTER DATABASE {named(database)} RESET default_transaction_read_only")
    await hang_up(server, database)
    await eventually(lambda: ledger.save_last_seen({"ana": NOW + 1}))
    assert await seen(ledger, "ana") == NOW + 1


async def hang_up(server, database):
    await server.sql(
        f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{named(database)}'"
    )


@pytest.fixture
async def standby(fragile):
    """A standby that replicates and may fall behind. It is stopped at the end."""
    server = PostgresServer()
    try:
        yield server.copy_of(fragile).start()
    finally:
        server.close()


def both(standby, primary, database):
    return f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{named(database)}"


async def test_a_postgresql_standby_is_refused_and_the_primary_in_the_url_is_used(fragile, fragile_database, standby):
    ledger = open_postgres(both(standby, fragile, fragile_database))
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    await ledger.close()
    sentence = await refused(standby.url(named(fragile_database)), Unavailable)
    assert "is a standby in recovery, which cannot be written: name the primary" in sentence


async def test_after_a_postgresql_failover_that_lost_changes_a_reader_of_the_change_table_starts_over(
    fragile, fragile_database, standby
):
    """The ids of changes continue below the reader's cursor: it would miss the next ones."""
    ledger = open_postgres(both(standby, fragile, fragile_database))
    await ledger.open()
    await ledger.apply([follow("ana", "bo")])
    name = named(fragile_database)
    async with asyncio.timeout(PATIENCE):
        while await standby.sql("SELECT to_regclass('herenow.changes')::text", name) == [(None,)]:
            await asyncio.sleep(0.02)
        while await standby.sql("SELECT count(*) FROM herenow.changes", name) != [(1,)]:
            await asyncio.sleep(0.02)
    await cut_off(standby)
    for number in range(100):
        await ledger.set_idle_after(f"user-{number}", 60_000)
    cursor = await ledger.changes_head()
    assert await ledger.changes(cursor, 10) == ([], cursor)
    fragile.kill()
    for _ in range(3):
        with pytest.raises(Unavailable) as trouble:
            await ledger.changes(cursor, 10)
        assert "127.0.0.1" not in str(trouble.value)  # the text may be shown to strangers
    await standby.sql("SELECT pg_promote(true, 60)")
    other = open_postgres(standby.url(name))
    await other.open()
    for number in range(60):
        await other.set_idle_after(f"user-{number}", 90_000)
    head = await other.changes_head()
    assert head < cursor
    assert await eventually(lambda: ledger.changes(cursor, 10)) == ([LedgerChange("everything", "", "")], head)
    assert await ledger.changes(head, 10) == ([], head)
    await other.set_idle_after("ana", 60_000)
    assert (await ledger.changes(head, 10))[0] == [LedgerChange("preferences", "ana", "")]
    await ledger.close()
    await other.close()


async def test_a_different_postgresql_database_at_the_same_address_is_refused(server, database, ledger):
    """As after creating a new ledger, or restoring a backup of another one."""
    name = named(database)
    await server.sql("ALTER SCHEMA herenow RENAME TO ours", name)
    stranger = open_postgres(database)
    await stranger.open()
    await stranger.close()
    await hang_up(server, database)
    with pytest.raises(Unavailable, match="not the one that herenow started with"):
        await ledger.changes(0, 10)
    await server.sql("DROP SCHEMA herenow CASCADE", name)
    await server.sql("ALTER SCHEMA ours RENAME TO herenow", name)
    await hang_up(server, database)
    assert await ledger.changes(0, 10) == ([], 0)


async def cut_off(standby):
    """Stop the replication."""
    await standby.sql("ALTER SYSTEM SET primary_conninfo = ''")
    await standby.sql("SELECT pg_reload_conf()")
    async with asyncio.timeout(PATIENCE):
        while await standby.sql("SELECT 1 FROM pg_stat_wal_receiver"):
            await asyncio.sleep(0.02)


# --- Unreachable servers


async def test_a_stopped_postgresql_server_raises_unavailable_and_is_used_again_after_its_start(
    fragile, fragile_database
):
    ledger = open_postgres(fragile_database)
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    fragile.stop()
    for call in (
        ledger.remembered(["ana"]),
        ledger.save_last_seen({"ana": NOW + 1}),
        ledger.apply([follow("ana", "bo")]),
        ledger.changes(0, 10),
        ledger.stamp_run("run", NOW),
    ):
        with pytest.raises(Unavailable):
            await call
    late = open_postgres(fragile_database)
    with pytest.raises(Unavailable, match="Connection refused"):
        await late.open()
    fragile.start()
    await ledger.save_last_seen({"ana": NOW + 1})
    assert await seen(ledger, "ana") == NOW + 1
    await ledger.close()
    await late.close()


async def test_a_connection_closed_by_the_postgresql_server_is_replaced_without_an_error(server, database, ledger):
    await asyncio.gather(*(ledger.remembered(["ana"]) for _ in range(20)))
    await hang_up(server, database)
    await asyncio.sleep(0.05)  # the closes are read from the sockets
    await asyncio.gather(*(ledger.remembered(["ana"]) for _ in range(20)))
    await ledger.save_last_seen({"ana": NOW})


async def test_calls_to_a_frozen_postgresql_server_time_out_and_work_again_when_it_resumes(fragile, fragile_database):
    ledger = impatient(fragile_database)
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    fragile.freeze()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(
            *(ledger.remembered([f"user-{number}"]) for number in range(30)),
            *(ledger.save_last_seen({f"user-{number}": NOW}) for number in range(30)),
            return_exceptions=True,
        )
        assert {type(answer) for answer in answers} == {Unavailable}
        with pytest.raises(Unavailable, match=r"does not answer|did not answer in time"):
            await ledger.apply([follow("ana", "bo")])
    fragile.thaw()
    await eventually(lambda: ledger.save_last_seen({"ana": NOW + 1}))
    assert await seen(ledger, "ana") == NOW + 1
    assert await ledger.remembered([f"user-{number}" for number in range(30)]) == {}
    await ledger.close()


async def test_while_postgresql_does_not_answer_one_caller_tries_and_the_others_fail_at_once(fragile, fragile_database):
    ledger = impatient(fragile_database)
    await ledger.open()
    connector, attempts = ledger._connector._connect, 0

    async def counted(host):
        nonlocal attempts
        attempts += 1
        return await connector(host)

    ledger._connector._connect = counted
    ledger._connector._deadline = 0.3
    fragile.freeze()
    with pytest.raises(Unavailable):
        await ledger.remembered(["ana"])
    for _ in range(300):
        with pytest.raises(Unavailable):
            await ledger.remembered(["ana"])
    assert attempts < 30
    fragile.thaw()
    await eventually(lambda: ledger.remembered(["ana"]))
    await ledger.close()


async def test_a_frozen_postgresql_server_does_not_block_closing_the_database(fragile, fragile_database):
    ledger = impatient(fragile_database)
    await ledger.open()
    await ledger.close_runs()
    await asyncio.gather(*(ledger.remembered(["ana"]) for _ in range(6)))
    fragile.freeze()
    async with asyncio.timeout(PATIENCE):
        asking = asyncio.ensure_future(ledger.remembered(["ana"]))
        await asyncio.sleep(0)
        await ledger.close()
        with pytest.raises(Unavailable):
            await asking


async def test_a_postgresql_server_that_freezes_during_a_schema_check_times_out(fragile, fragile_database, monkeypatch):
    """As `herenow doctor` and `herenow migrate` do first."""
    monkeypatch.setattr(postgres, "LOOK", 0.3)

    def freeze(_connection, _cursor, statement, *_):
        if "pg_namespace" in statement:
            fragile.freeze()

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", freeze)
    try:
        for verb in ("schema", "diagnose"):
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(Unavailable, match="the connection was lost"):
                    await getattr(open_postgres(fragile_database), verb)()
            fragile.thaw()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", freeze)


async def test_a_frozen_host_in_a_postgresql_url_does_not_block_the_use_of_the_next_host(fragile, server, database):
    """Each of several hosts has its own deadline."""
    await server.sql("SELECT 1")
    fragile.freeze()
    url = f"postgresql://postgres@127.0.0.1:{fragile.port},127.0.0.1:{server.port}/{named(database)}"
    ledger = open_postgres(url)
    ledger._connector._deadline = 3.0
    async with asyncio.timeout(PATIENCE):
        await ledger.open()
        await ledger.save_last_seen({"ana": NOW})
    await ledger.close()


SLOW = 1_000
"""Milliseconds that a statement may take; opening a ledger takes less, even on a busy machine."""


async def test_a_slow_postgresql_statement_is_cancelled_and_its_connection_kept(server, database, monkeypatch):
    monkeypatch.setitem(postgres.MILLISECONDS, "statement_timeout", SLOW)
    ledger = open_postgres(database)
    await ledger.open()
    with pytest.raises(Unavailable, match="it took too long"):
        await ledger._read(lambda c: c.exec_driver_sql("SELECT pg_sleep(60)"))
    assert await ledger.remembered(["ana"]) == {}
    await ledger.close()


async def test_long_database_operations_are_exempt_from_the_postgresql_statement_timeout(server, database, monkeypatch):
    monkeypatch.setitem(postgres.MILLISECONDS, "statement_timeout", SLOW)
    ledger = open_postgres(database, Deadlines(read=3, write=3, at_length=60))
    await ledger.open()

    def sleep(seconds):
        return lambda c: c.exec_driver_sql(f"SELECT 1 FROM pg_sleep({seconds})").scalar_one()

    assert await ledger._write(sleep(1.2)) == 1  # writes have a longer limit than reads
    with pytest.raises(Unavailable, match="it took too long"):
        await ledger._write(sleep(60))
    assert await ledger._write(sleep(3.2), at_length=True) == 1
    await ledger.close()


async def test_a_postgresql_transaction_of_a_frozen_node_is_ended_after_a_timeout(server, database, monkeypatch):
    """It holds the lock of relation changes and will never finish."""
    monkeypatch.setitem(postgres.MILLISECONDS, "idle_in_transaction_session_timeout", 200)
    ledger, other = open_postgres(database), open_postgres(database)
    await ledger.open()
    await other.open()
    frozen = await ledger._connector.connect()
    await frozen.execute("BEGIN")
    await frozen.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, 1)")
    await other.apply([follow("ana", "bo")])
    assert await ledger.follows("ana", "bo")
    frozen.terminate()
    await ledger.close()
    await other.close()


async def test_a_caller_that_waits_too_long_for_a_postgresql_lock_gets_unavailable(server, database, monkeypatch):
    monkeypatch.setitem(postgres.MILLISECONDS, "lock_timeout", 50)
    ledger = open_postgres(database)
    await ledger.open()
    holder = await ledger._connector.connect()
    await holder.execute("BEGIN")
    await holder.execute(f"SELECT pg_advisory_xact_lock({LOCKS}, 1)")
    with pytest.raises(Unavailable, match="another process holds a lock for too long"):
        await ledger.apply([follow("ana", "bo")])
    await ledger.save_last_seen({"ana": NOW})
    await holder.execute("ROLLBACK")
    await holder.close()
    await ledger.apply([follow("ana", "bo")])
    await ledger.close()


async def test_a_postgresql_server_at_its_connection_limit_is_used_with_the_open_connections(server, database, clerk):
    name = named(database)
    await server.sql("ALTER ROLE clerk CONNECTION LIMIT 2")
    for what in ("SCHEMA herenow", "ALL TABLES IN SCHEMA herenow", "ALL SEQUENCES IN SCHEMA herenow"):
        await server.sql(f"GRANT ALL ON {what} TO clerk", name)
    ledger = open_postgres(server.url(name, clerk))
    await ledger.open()
    for _ in range(5):
        await asyncio.gather(*(ledger.remembered([f"user-{number}"]) for number in range(20)))
        await ledger.save_last_seen({"ana": NOW})
    one_more = open_postgres(server.url(name, clerk))
    with pytest.raises(Unavailable, match="it has no connection left"):
        await one_more.open()
    await ledger.close()
    await server.sql("DROP OWNED BY clerk", name)


# --- Unknown outcomes


class Proxy:
    """Between a ledger and its server. `cut` = "before": the next COMMIT is dropped; "after": its answer is dropped."""

    def __init__(self, port):
        self._port = port
        self.cut = ""
        self.cuts = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _accept(self, from_client, to_client):
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        answering = asyncio.ensure_future(self._copy(from_server, to_client))
        try:
            while data := await from_client.read(65_536):
                if self.cut and b"COMMIT;" in data:
                    self.cuts += 1
                    when, self.cut = self.cut, ""
                    if when == "after":
                        answering.cancel()
                        to_server.write(data)
                        await from_server.read(65_536)
                    break
                to_server.write(data)
        except OSError:
            pass
        finally:
            answering.cancel()
            to_client.transport.abort()
            to_server.transport.abort()

    async def _copy(self, reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_postgresql_connection_cut_at_commit_is_an_unknown_outcome_and_the_write_can_be_repeated(
    server, database, when
):
    async with Proxy(server.port) as proxy:
        ledger = open_postgres(database.replace(str(server.port), str(proxy.port)))
        await ledger.open()
        writes = [
            lambda: ledger.save_last_seen({"ana": NOW}),
            lambda: ledger.save_choices([Choice("ana", 3)]),
            lambda: ledger.apply([follow("ana", "bo"), follow("bo", "ana")]),
            lambda: ledger.block(BlockRow("ana", "cy", NOW)),
            lambda: ledger.void(Void("dee", NOW, NOW + 10)),
            lambda: ledger.erase(Void("eve", NOW, NOW + 10, NOW)),
        ]
        for write in writes:
            proxy.cut = when
            with pytest.raises(UnknownOutcome):
                await write()
            await write()
            await write()
        assert proxy.cuts == len(writes)
        assert await seen(ledger, "ana") == NOW
        assert await ledger.contacts("ana", NOW) == ["bo"]
        assert await ledger.blocks("ana", ["cy"]) == [BlockRow("ana", "cy", NOW)]
        told, _ = await ledger.changes(0, 100)
        assert set(told) == {
            LedgerChange("relation", "ana", "bo"),
            LedgerChange("relation", "ana", "cy"),
            LedgerChange("void", "dee", ""),
            LedgerChange("void", "eve", ""),
            LedgerChange("preferences", "eve", ""),
        }
        await ledger.close()


async def test_a_postgresql_connection_cut_before_commit_raises_unavailable_and_writes_nothing(server, database):
    ledger = open_postgres(database)
    await ledger.open()

    def cut(connection):
        ledger._users.save_last_seen(connection, {"ana": NOW})
        connection.connection.driver_connection.terminate()
        ledger._users.save_last_seen(connection, {"bo": NOW})

    with pytest.raises(Unavailable):
        await ledger._write(cut)
    assert await ledger.remembered(["ana", "bo"]) == {}
    await ledger.close()


# --- The disk


@pytest.fixture
def small_disk(fragile):
    """A small disk. Objects on it are dropped at the end: without the disk the server would not start."""
    place = fragile.folder / "small"
    place.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    size = ["mount", "-t", "tmpfs", "-o", "size=16m,uid=65534,gid=65534,mode=0700", "none", str(place)]
    if subprocess.run(size, capture_output=True).returncode:
        pytest.skip("nobody may mount anything here")
    try:
        yield place
    finally:
        (place / "filler").unlink(missing_ok=True)
        fragile.start_again()
        fragile.sql_now("DROP DATABASE IF EXISTS on_small_disk WITH (FORCE)")
        fragile.sql_now("DROP TABLESPACE IF EXISTS small")
        fragile.stop()
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_of_the_postgresql_server_raises_unavailable_and_damages_no_data(fragile, small_disk):
    await fragile.sql(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    await fragile.sql("CREATE DATABASE on_small_disk TABLESPACE small")
    ledger = open_postgres(fragile.url("on_small_disk"))
    await ledger.open()
    await ledger.save_last_seen({"ana": NOW})
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        with pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"\0" * 65_536)
                file.flush()
    many = {f"user-{number}-{'x' * 60}": NOW for number in range(4_000)}
    with pytest.raises(Unavailable, match="its disk is full"):
        await ledger.save_last_seen(many)
    with pytest.raises(Unavailable, match="its disk is full"):
        await ledger.apply([follow("me", user) for user in many])
    assert await seen(ledger, "ana") == NOW
    assert await ledger.remembered(list(many)[:100]) == {}
    assert await ledger.changes(0, 10) == ([], 0)
    filler.unlink()
    await ledger.save_last_seen(dict(list(many.items())[:1_000]))
    assert len(await ledger.remembered(list(many))) == 1_000
    await ledger.close()


# --- kill -9


async def test_kill_9_of_postgresql_loses_no_acknowledged_write_and_leaves_no_partial_write(fragile, fragile_database):
    """Repeated kills in the middle of writes."""
    ledger = open_postgres(fragile_database)
    await ledger.open()
    acknowledged, doubtful, ended = 0, 0, False

    async def write():
        nonlocal acknowledged, doubtful
        while not ended:
            users = [f"user-{acknowledged}-{number}" for number in range(100)]
            try:
                await ledger.save_last_seen(dict.fromkeys(users, acknowledged))
                await ledger.apply([row for user in users for row in (follow("me", user), follow(user, "me"))])
                acknowledged += 1
            except (Unavailable, UnknownOutcome):
                doubtful += 1
                await asyncio.sleep(0.01)

    writing = asyncio.ensure_future(write())
    for _ in range(4):
        goal = acknowledged + 5
        async with asyncio.timeout(PATIENCE):
            while acknowledged < goal:
                await asyncio.sleep(0.003)
        await asyncio.to_thread(fragile.kill)
        await asyncio.to_thread(fragile.start)
    ended = True
    await writing
    await ledger.close()
    await ledger.open()
    assert acknowledged >= 20
    assert doubtful >= 4
    batches = [[f"user-{batch}-{number}" for number in range(100)] for batch in range(acknowledged + 1)]
    known = [await ledger.remembered(users) for users in batches]
    assert [len(each) for each in known[:acknowledged]] == [100] * acknowledged
    assert len(known[acknowledged]) in (0, 100)
    friends = await ledger.contacts("me", NOW)
    assert set(friends) >= {user for users in batches[:acknowledged] for user in users}
    assert len(friends) % 100 == 0
    told, _ = await ledger.changes(0, 1_000_000)
    assert {change.b if change.a == "me" else change.a for change in told} == set(friends)
    await ledger.close()
