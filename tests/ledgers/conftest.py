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
