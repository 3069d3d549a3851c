"""Parsing of ledger URLs."""

import re

import pytest

from herenow.errors import ConfigurationError
from herenow.ledgers import open_ledger
from herenow.ledgers.postgres import parse_postgres_url


async def test_a_sqlite_url_with_three_slashes_is_relative_to_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger("sqlite:///herenow.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await ledger.open()
    await ledger.close()
    assert (tmp_path / "herenow.db").exists()


async def test_a_sqlite_url_with_four_slashes_is_an_absolute_path(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path}/with space?&#%41.db")
    await ledger.open()
    await ledger.close()
    assert [file.name for file in tmp_path.iterdir()] == ["with space?&#%41.db"]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_sqlite_url_without_a_path_is_a_database_in_memory(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger(url)
    await ledger.open()
    await ledger.save_last_seen({"ana": 1})
    await ledger.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["mysql://root:hunter2@db/presence", "herenow.db", "", "sqlite:herenow.db", "://"])
def test_a_database_url_with_an_unknown_scheme_is_refused_without_showing_its_password(url):
    with pytest.raises(ConfigurationError, match="allowed is sqlite://") as refusal:
        open_ledger(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("rest", "hosts", "shown"),
    [
        ("ana:pw@db/presence", (("db", 5432),), "postgresql://ana@db/presence"),
        ("ana:p%2Fw%40@db:5433/x?sslmode=require", (("db", 5433),), "postgresql://ana@db:5433/x"),
        ("ana:p@w@db/x", (("db", 5432),), "postgresql://ana@db/x"),
        ("a@h1:1,h2,[::1]:3/x", (("h1", 1), ("h2", 5432), ("::1", 3)), "postgresql://a@h1:1,h2,[::1]:3/x"),
        ("/x", (), "postgresql:///x"),
        ("", (), "postgresql:///"),
        ("db?password=hunter2", (("db", 5432),), "postgresql://db/"),
    ],
)
def test_a_postgresql_url_is_parsed_and_shown_without_its_password(rest, hosts, shown):
    place = parse_postgres_url(rest)
    assert (place.hosts, str(place)) == (hosts, shown)
    assert place.url == f"postgresql://{rest}"
    assert not re.search("pw|p%2F|p@w|hunter2", repr(place))


@pytest.mark.parametrize(
    "rest",
    [
        "ana:hun/ter2@db/x",
        "ana:12/hunter2@db/x",
        "ana:hunter2#@db/x",
        "ana:hunter2[@db/x",
        "ana:hunter 2@db/x",
        "ana:hunter2@db:port/x",
        "ana:hunter2@db:123456/x",
        "ana:hunter2@db,,db2/x",
        "ana:hunter2@[::1/x",
        "db/x\n",
    ],
)
def test_an_unparsable_postgresql_url_is_refused_without_showing_it(rest):
    with pytest.raises(ConfigurationError, match="write postgresql://user:password@host:5432/database") as no:
        open_ledger(f"postgresql://{rest}")
    assert not re.search("hun|ter2|ana", str(no.value))


@pytest.mark.parametrize("url", ["sqlite://herenow.db", "sqlite:///"])
def test_a_malformed_sqlite_url_is_refused_with_an_example(url):
    with pytest.raises(ConfigurationError, match=r"sqlite:///herenow\.db"):
        open_ledger(url)
