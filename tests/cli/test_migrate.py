"""`herenow migrate` brings a ledger up to date and reports it."""

from pathlib import Path


def test_herenow_migrate_brings_an_empty_sqlite_database_up_to_date_once(herenow):
    first = herenow("migrate")
    assert first.exit_code == 0
    assert first.stdout.startswith("The database schema was migrated from empty to ")
    second = herenow("migrate")
    assert second.exit_code == 0
    assert second.stdout.startswith("The database schema is up to date")


def test_herenow_migrate_prints_one_error_line_if_the_database_cannot_be_opened(herenow):
    Path("herenow.db").mkdir()
    result = herenow("migrate")
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
