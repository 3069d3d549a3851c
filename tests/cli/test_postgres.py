"""Commands on a ledger in PostgreSQL: their output for operators and their exit codes for scripts."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port

from herenow.cli.doctor.findings import Weight
from herenow.cli.doctor.terms_check import agreement
from herenow.ledgers.sql import NEWEST, VERSION_TABLE
from herenow.settings import load

_numbers = itertools.count()


@pytest.fixture
def database(postgres_server):
    """URL of an empty database, with a password that is not needed."""
    name = f"cli_{next(_numbers)}"
    postgres_server.sql_now(f"CREATE DATABASE {name}")
    yield postgres_server.url(name, "postgres:hunter2")
    postgres_server.sql_now(f"DROP DATABASE {name} WITH (FORCE)")


def sql(server, url, statement):
    return server.sql_now(statement, url.rpartition("/")[2])


def words(result):
    """The output without line breaks; asserts that it has no password."""
    said = result.stdout + result.stderr
    assert "hunter2" not in said
    assert "Traceback" not in said
    return " ".join(said.split())


def test_herenow_migrate_brings_an_empty_postgresql_database_up_to_date_once(herenow, database):
    first, second = herenow("migrate", "--ledger", database), herenow("migrate", "--ledger", database)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout == f"The database schema was migrated from empty to {NEWEST}.\n"
    assert second.stdout == f"The database schema is up to date ({NEWEST}).\n"


def test_herenow_import_writes_relations_into_a_postgresql_database(herenow, postgres_server, database):
    Path("graph.csv").write_text("follow,ana,bo\nfollow,bo,ana\nroom,r,ana\n")
    result = herenow("import", "graph.csv", "--ledger", database)
    assert result.exit_code == 0, result.stderr
    assert "Imported 3 rows; 3 of them were new." in words(result)
    assert sql(postgres_server, database, "SELECT count(*) FROM herenow.follows") == "2"


def test_herenow_import_into_postgresql_with_an_older_or_newer_schema_prints_one_error_line(
    herenow, postgres_server, database
):
    herenow("migrate", "--ledger", database)
    for version, exit_code, advice in (("0001", 2, "run herenow migrate first"), ("9999", 2, "or a newer one")):
        sql(postgres_server, database, f"UPDATE herenow.{VERSION_TABLE} SET version_num = '{version}'")
        result = herenow("import", "-", "--ledger", database, stdin="follow,ana,bo\n")
        assert result.exit_code == exit_code
        assert re.fullmatch(rf"Error: The database .*{version}.*{advice}\.", words(result))
        assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["migrate", "doctor", "import"])
def test_commands_print_an_error_if_the_postgresql_server_or_database_is_missing(herenow, postgres_server, command):
    nobody = f"postgresql://ana:hunter2@127.0.0.1:{free_port()}/x"
    nowhere = postgres_server.url("nowhere", "postgres:hunter2")
    arguments = [command, "-"] if command == "import" else [command]
    for url, exit_code, sentence in (
        (nobody, 1, "cannot be used: Connection refused."),
        (nowhere, 2, "/nowhere does not exist: create it"),
        ("postgresql://ana:hunter/2@db/x", 2, "The database URL is not valid"),
    ):
        result = herenow(*arguments, "--ledger", url, stdin="")
        assert result.exit_code == (1 if command == "doctor" else exit_code)
        assert sentence in words(result)
        assert command == "doctor" or len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("broken", ["refused", "older", "read-only"])
def test_herenow_serve_reports_in_one_line_why_it_cannot_start_on_a_postgresql_database(
    herenow, postgres_server, database, broken
):
    """In a separate process: it configures logging, which must not add lines."""
    herenow("migrate", "--ledger", database)
    url, exit_code, sentence = database, 2, "run herenow migrate first"
    if broken == "refused":
        url, exit_code, sentence = database.replace(str(postgres_server.port), str(free_port())), 1, "refused"
    elif broken == "older":
        sql(postgres_server, database, f"UPDATE herenow.{VERSION_TABLE} SET version_num = '0002'")
    else:
        name = database.rpartition("/")[2]
        postgres_server.sql_now(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        sentence = "is read-only"
    command = [sys.executable, "-m", "herenow.cli", "serve", "--port", "0", "--ledger", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == exit_code
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr + done.stdout


def test_doctor_accepts_a_new_postgresql_database_and_changes_nothing(herenow, postgres_server, database):
    result = herenow("doctor", "--ledger", database)
    assert result.exit_code == 0, result.stdout
    said = words(result)
    assert re.search(r"postgresql://postgres:\*\*\*@127\.0\.0\.1:\d+/cli_\d+ answers \(PostgreSQL \d+", said)
    assert "There is none yet; it is created at the first start." in said
    assert "fsync or full_page_writes is off" in said  # as the test server has it
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'herenow'"
    assert sql(postgres_server, database, schemas) == "0"


def test_doctor_reports_an_older_or_newer_postgres_schema(herenow, postgres_server, database):
    herenow("migrate", "--ledger", database)
    assert f"Up to date ({NEWEST})" in words(herenow("doctor", "--ledger", database))
    for version, advice in (("0001", "run herenow migrate before the next start"), ("9999", "that wrote it")):
        sql(postgres_server, database, f"UPDATE herenow.{VERSION_TABLE} SET version_num = '{version}'")
        result = herenow("doctor", "--ledger", database)
        assert result.exit_code == 1
        assert advice in words(result)


def test_doctor_checks_whether_a_postgresql_database_is_the_one_of_the_running_nodes(
    herenow, postgres_server, database
):
    settings = load({"ledger": database}, None)
    [finding] = agreement(settings, {"ledger": "theirs"})
    assert "cli_" in finding.sentence
    assert "does not exist yet" in finding.sentence
    assert "hunter2" not in finding.sentence
    herenow("migrate", "--ledger", database)
    [finding] = agreement(settings, {"ledger": "theirs"})
    assert "exists, but is not the one" in finding.sentence
    theirs = sql(postgres_server, database, "SELECT value FROM herenow.meta WHERE key = 'id'")
    assert [finding.weight for finding in agreement(settings, {"ledger": theirs})] == [Weight.FINE]


def test_doctor_reports_missing_rights_of_the_postgresql_user(herenow, postgres_server, database):
    name = database.rpartition("/")[2]
    postgres_server.sql_now("CREATE ROLE visitor LOGIN")
    url = postgres_server.url(name, "visitor:hunter2")
    result = herenow("doctor", "--ledger", url)
    assert result.exit_code == 1
    assert "this database user may not create one: run herenow migrate as a user who may" in words(result)
    herenow("migrate", "--ledger", database)
    sql(postgres_server, database, "GRANT USAGE ON SCHEMA herenow TO visitor")
    sql(postgres_server, database, "GRANT SELECT ON ALL TABLES IN SCHEMA herenow TO visitor")
    result = herenow("doctor", "--ledger", url)
    assert result.exit_code == 1
    assert "does not let its user read and write herenow.blocks" in words(result)
    sql(postgres_server, database, "DROP OWNED BY visitor")
    postgres_server.sql_now("DROP ROLE visitor")
