import asyncio
import itertools

import pytest
from tests.postgres_server import PostgresServer

from herenow.ledgers import open_ledger

pytest.register_assert_rewrite("herenow.testing.ledger_contract")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server():
    """One for all tests that do it no harm."""
    server = PostgresServer()
    try:
        yield server.make().start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def template(server):
    """A database with a new ledger in it: copying it is quicker than making it again for every test."""

    async def make():
        await open_ledger(await server.make_database("made_before")).migrate()

    asyncio.run(make())
    return "made_before"


@pytest.fixture
async def database(server, template):
    """The URL of a new ledger of its own."""
    name = f"ledger_{next(_numbers)}"
    yield await server.make_database(name, template)
    await server.drop_database(name)


@pytest.fixture
async def ledger(database):
    ledger = open_ledger(database)
    await ledger.open()
    yield ledger
    await ledger.close()


@pytest.fixture(scope="session")
def fragile_server():
    """One that tests may do anything to, as long as it can be started again."""
    server = PostgresServer()
    try:
        yield server.make()
    finally:
        server.close()


@pytest.fixture
async def fragile(fragile_server):
    fragile_server.start_again()
    yield fragile_server
    fragile_server.thaw()


@pytest.fixture
async def fragile_database(fragile):
    return await fragile.make_database(f"fragile_{next(_numbers)}")
