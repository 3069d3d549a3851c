"""One PostgreSQL for a whole session, and a new ledger in it for every test that wants one."""

import asyncio
import itertools

import pytest
from tests.postgres_server import PostgresServer, open_postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server():
    """For all tests that do it no harm."""
    server = PostgresServer()
    try:
        yield server.make().start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server):
    """A database with a new ledger in it: copying it is quicker than making it again for every test."""

    async def make():
        await open_postgres(await postgres_server.make_database("made_before")).migrate()

    asyncio.run(make())
    return "made_before"


@pytest.fixture
async def postgres_url(postgres_server, postgres_template):
    """Of a new ledger."""
    name = f"ledger_{next(_numbers)}"
    yield await postgres_server.make_database(name, postgres_template)
    await postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def _fragile_postgres():
    server = PostgresServer()
    try:
        yield server.make()
    finally:
        server.close()


@pytest.fixture
async def fragile_postgres(_fragile_postgres):
    """One that tests may do anything to, as long as it can be started again."""
    _fragile_postgres.start_again()
    yield _fragile_postgres
    _fragile_postgres.thaw()


@pytest.fixture
async def fragile_url(fragile_postgres):
    """Of an empty database in it."""
    return await fragile_postgres.make_database(f"fragile_{next(_numbers)}")
