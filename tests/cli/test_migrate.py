"""`herenow migrate` brings a ledger up to date and reports it."""

from pathlib import Path


def test_an_empty_ledger_is_brought_up_to_date_once(herenow):
    first = herenow("migrate")
    assert first.exit_code == 0
    assert first.stdout.startswith("The database schema was migrated from empty to ")
    second = herenow("migrate")
    assert second.exit_code == 0
    assert second.stdout.startswith("The database schema is up to date")


def test_a_ledger_that_cannot_be_opened_gives_one_error_line(herenow):
    Path("herenow.db").mkdir()
    result = herenow("migrate")
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
