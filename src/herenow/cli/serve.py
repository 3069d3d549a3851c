"""`herenow serve`: a node, or several worker processes on one port.

With `--workers` this process only supervises: it starts the same command line once per worker, plus a flag with the
descriptor of the supervisor's socket. A worker started later (also by SIGUSR2) uses the program and settings of that time.
"""

import asyncio
import os
import sys

import click

from herenow.cli.fast_imports import fast_imports
from herenow.cli.flags import with_settings
from herenow.errors import Unavailable
from herenow.settings import Settings


@click.command()
@click.option("--demo", is_flag=True, help="Add a few users who follow each other, and print a link to a demo page.")
@click.option("--link", type=int, hidden=True, help="For workers: the descriptor that leads to the supervisor.")
@with_settings()
@click.pass_context
def serve(ctx: click.Context, /, settings: Settings, *, demo: bool, link: int | None) -> None:
    """Run a node: WebSocket and REST on one port."""
    if demo and settings.asks_the_application:
        raise click.ClickException(
            "--demo writes its own relations, but the setting relations names an application: use only one of them."
        )
    if demo and settings.workers > 1:
        raise click.ClickException("--demo is for one process: leave workers at 1.")
    if link is not None:
        ctx.exit(_work(settings, link))
    if settings.workers > 1:
        ctx.exit(_supervise(settings))
    with fast_imports():
        from herenow.app import serve as run

    ctx.exit(run(settings, demo=demo))


def _work(settings: Settings, link: int) -> int:
    with fast_imports():
        from herenow.app import work

    try:
        return work(settings, link)
    except Unavailable as error:
        click.echo(f"Error: {error}", err=True)
        return os.EX_TEMPFAIL  # lets the supervisor see that a service, not the worker, is at fault


def _supervise(settings: Settings) -> int:
    with fast_imports():
        from herenow.announcement import announcement
        from herenow.logs import configure_logging
        from herenow.transport.address import held, url_of
        from herenow.workers.supervisor import Supervisor

    configure_logging(settings.log_format, settings.log_level)
    with held(settings.host, settings.port) as address:
        lines = announcement(settings, url_of(address, secure=settings.tls_cert is not None))

        async def supervise() -> int:
            supervisor = Supervisor(
                (sys.executable, "-P", "-m", "herenow.cli", *sys.argv[1:], "--link"),
                workers=settings.workers,
                address=(settings.host, address.getsockname()[1]),
                hung_after=max(10.0, 2 * settings.node_lease),
                on_ready=lambda: click.echo("\n".join(lines)),
            )
            return await supervisor.run()

        return asyncio.run(supervise())
