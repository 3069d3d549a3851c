"""`herenow serve`: a node. Flags become settings; the composition root does the rest."""

import click

from herenow.cli.flags import with_settings
from herenow.settings import Settings


@click.command()
@click.option(
    "--demo", is_flag=True, help="Add a few people who follow each other, and print a link to try it."
)
@with_settings()
@click.pass_context
def serve(ctx: click.Context, /, settings: Settings, *, demo: bool) -> None:
    """Run a node: WebSocket and REST on one port."""
    from herenow.app import serve as run

    if demo and settings.asks_the_application:
        raise click.ClickException(
            "--demo writes relations of its own, but the setting relations asks an application: take one of them."
        )
    ctx.exit(run(settings, demo=demo))
