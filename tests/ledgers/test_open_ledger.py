"""Which ledger a URL means."""

import pytest

from herenow.errors import ConfigurationError
from herenow.ledgers import open_ledger


async def test_three_slashes_are_a_file_beside_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger("sqlite:///herenow.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await ledger.open()
    await ledger.close()
    assert (tmp_path / "herenow.db").exists()


async def test_four_slashes_are_an_absolute_path(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path}/with space?&#%41.db")
    await ledger.open()
    await ledger.close()
    assert [file.name for file in tmp_path.iterdir()] == ["with space?&#%41.db"]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_no_path_is_a_ledger_in_memory(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger(url)
    await ledger.open()
    await ledger.save_last_seen({"ana": 1})
    await ledger.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "url", ["mysql://root:hunter2@db/presence", "herenow.db", "", "sqlite:herenow.db", "://"]
)
def test_an_unknown_scheme_is_refused_with_the_known_ones_and_without_secrets(url):
    with pytest.raises(ConfigurationError, match="allowed is sqlite://") as refusal:
        open_ledger(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("url", ["sqlite://herenow.db", "sqlite:///"])
def test_an_sqlite_url_without_a_path_says_how_to_write_one(url):
    with pytest.raises(ConfigurationError, match=r"sqlite:///herenow\.db"):
        open_ledger(url)
