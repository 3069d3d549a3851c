"""`herenow migrate`: brings the ledger's schema up to date, before nodes start on it."""

import asyncio

import click

from herenow.cli.flags import with_settings
from herenow.settings import Settings


@click.command()
@with_settings("ledger")
def migrate(settings: Settings) -> None:
    """Migrate the database schema to the newest version."""
    before, after = asyncio.run(_migrate(settings.ledger))
    if before == after:
        click.echo(f"The database schema is up to date ({after}).")
    else:
        click.echo(f"The database schema was migrated from {before or 'empty'} to {after}.")


async def _migrate(url: str) -> tuple[str | None, str]:
    from herenow.ledgers import open_ledger

    ledger = open_ledger(url)
    try:
        before, newest = await ledger.schema()
        if before != newest:
            await ledger.migrate()
        return before, newest
    finally:
        await ledger.close()
