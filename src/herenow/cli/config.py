"""`herenow config`: the settings in force and where each value comes from."""

import click
from rich.console import Console
from rich.table import Table

from herenow.cli.flags import with_settings
from herenow.settings import Settings

PIPED_WIDTH = 200  # columns without a terminal: wide enough that grep finds whole rows


@click.command()
@with_settings()
def config(settings: Settings) -> None:
    """Show all settings: current value, default, unit and source."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    console.print(_table(settings))


def _table(settings: Settings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "default", "unit", "from", "about"):
        table.add_column(heading, overflow="fold")
    for row in settings.rows():
        style = "" if row.source == "default" else "green"
        table.add_row(row.name, row.value, row.default, row.unit, row.source, row.about, style=style)
    return table
