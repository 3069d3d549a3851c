"""One PostgreSQL server for a whole test session, and a new ledger in it for every test that asks for one.

Every test run loads this module, so modules that need a ledger are imported inside the fixtures.
"""

import asyncio
import itertools

import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server():
    """Shared by all tests; tests must not damage or stop it."""
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        yield server.make().start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server):
    """A database with a new ledger. Copying it is faster than migrating again for every test."""
    from tests.postgres_server import open_postgres

    async def make():
        await open_postgres(await postgres_server.make_database("made_before")).migrate()

    asyncio.run(make())
    return "made_before"


@pytest.fixture
async def postgres_url(postgres_server, postgres_template):
    """URL of a new ledger."""
    name = f"ledger_{next(_numbers)}"
    yield await postgres_server.make_database(name, postgres_template)
    await postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def _fragile_postgres():
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        yield server.make()
    finally:
        server.close()


@pytest.fixture
async def fragile_postgres(_fragile_postgres):
    """A server that a test may stop, kill or break, as long as it can be started again."""
    _fragile_postgres.start_again()
    yield _fragile_postgres
    _fragile_postgres.thaw()


@pytest.fixture
async def fragile_url(fragile_postgres):
    """URL of an empty database on the fragile server."""
    return await fragile_postgres.make_database(f"fragile_{next(_numbers)}")
