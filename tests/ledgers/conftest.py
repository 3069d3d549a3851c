import pytest
from tests.postgres_server import open_postgres


@pytest.fixture
def server(postgres_server):
    return postgres_server


@pytest.fixture
def database(postgres_url):
    return postgres_url


@pytest.fixture
def fragile(fragile_postgres):
    return fragile_postgres


@pytest.fixture
def fragile_database(fragile_url):
    return fragile_url


@pytest.fixture
async def ledger(database):
    ledger = open_postgres(database)
    await ledger.open()
    yield ledger
    await ledger.close()
