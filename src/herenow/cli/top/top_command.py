"""`herenow top`: shows the state of nodes every few seconds.

On a terminal it redraws a full-screen view, and restores the screen at the end. Otherwise (file, pipe, `--once`) it prints
the same lines one after the other, without colours. `top_view` makes the lines, `node_client` reads the stats.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import httpx2
import msgspec

from herenow.cli.flags import with_settings
from herenow.cli.node_client import (
    NoAnswer,
    NodeAnswer,
    Token,
    ask_nodes,
    checked_url,
    own_certificate,
    own_url,
    tokens,
)
from herenow.cli.top.top_view import Line, fitted, lines, printed, problems
from herenow.errors import ConfigurationError
from herenow.settings import Settings

SHORTEST = 0.2
"""Shortest interval in seconds between two reads, to limit the load on the nodes."""

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the alternate screen and hide the cursor; undo both."""

TOP, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class TopOptions:
    urls: tuple[str, ...]
    token: Token
    every: float
    once: bool
    json: bool


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--token", help="A service token; herenow token NAME --scope read prints one.")
@click.option("--every", type=float, default=1.0, show_default=True, help="Seconds between two updates, at least 0.2.")
@click.option("--once", is_flag=True, help="Print once and exit. The exit code is 1 if there is a problem.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per update, for programs.")
@with_settings(
    "host",
    "port",
    "tls_cert",
    "tls_key",
    "ledger",
    "secret",
    "token_max_ttl",
    "jwks_url",
    "jwks_file",
    "jwt_issuer",
    "jwt_audience",
)
@click.pass_context
def top(
    ctx: click.Context,
    /,
    settings: Settings,
    *,
    urls: Sequence[str],
    token: str | None,
    every: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show the live state of one or several nodes.

    URL is the address of a node. The default is the node that runs on this machine with these settings, which needs no
    token. For other machines pass --token; without it a token is made with the configured secret."""
    if not SHORTEST <= every <= 3600:
        raise ConfigurationError(f"--every = {every:g} is not allowed: it must be from {SHORTEST:g} to 3600 s.")
    named = tuple(dict.fromkeys(map(checked_url, urls))) or (own_url(settings),)
    wanted = TopOptions(named, tokens(settings, token), every, once, as_json)
    verify = True if urls else own_certificate(settings)
    try:
        ctx.exit(asyncio.run(_run(wanted, verify=verify)))
    except KeyboardInterrupt:
        ctx.exit(0)
    except BrokenPipeError:  # the reader of the pipe has ended, for example `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(0)


async def _run(wanted: TopOptions, *, verify: ssl.SSLContext | bool) -> int:
    async with httpx2.AsyncClient(verify=verify, trust_env=False, follow_redirects=False) as client:
        asked = await ask_nodes(client, wanted.urls, wanted.token)
        if not any(node.stats for node in asked) and not wanted.json:
            return _print_errors(asked)
        if wanted.once:
            _print(asked, wanted)
            return _verdict(asked)
        if wanted.json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            return await _follow(client, wanted, asked)
        return await _Screen(client, wanted).run(asked)


def _print_errors(asked: Sequence[NodeAnswer]) -> int:
    for node in asked:
        click.echo(f"Error: {node.sentence}", err=True)
    return _verdict(asked)


def _verdict(asked: Sequence[NodeAnswer]) -> int:
    """The exit code of the command: 0 without problems, 1 with problems, 2 if a node refused the request."""
    if any(node.why is NoAnswer.REFUSED for node in asked):
        return 2
    return int(bool(problems(asked)))


# --- To a file or pipe


async def _follow(client: httpx2.AsyncClient, wanted: TopOptions, asked: list[NodeAnswer]) -> int:
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    while True:
        _print(asked, wanted)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wanted.every):
                await stop.wait()
        if stop.is_set():
            return 0
        asked = await ask_nodes(client, wanted.urls, wanted.token)


def _print(asked: Sequence[NodeAnswer], wanted: TopOptions) -> None:
    """Print the state of the nodes, as text or JSON. One write and a flush give the reader of a pipe whole blocks
    without delay."""
    if wanted.json:
        text = _json(asked)
    else:
        width = shutil.get_terminal_size((120, 0)).columns
        text = "\n".join([*printed([_head(wanted), *lines(asked, width)], colours=False), ""])
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _json(asked: Sequence[NodeAnswer]) -> str:
    nodes = [{"url": node.url, "stats": node.stats, "error": node.sentence or None} for node in asked]
    found = [{"nodes": p.where, "problem": p.sentence, "fix": p.fix} for p in problems(asked)]
    return msgspec.json.encode({"at": round(time.time() * 1000), "problems": found, "nodes": nodes}).decode()


def _head(wanted: TopOptions) -> Line:
    nodes = wanted.urls[0] if len(wanted.urls) == 1 else f"{len(wanted.urls)} nodes"
    return Line(f"herenow top · {nodes} · {time.strftime('%H:%M:%S')}", "bold")


# --- On a terminal


class _Screen:
    """The full-screen view, until q, Ctrl-C or a signal. Resizing the terminal redraws it at once."""

    def __init__(self, client: httpx2.AsyncClient, wanted: TopOptions) -> None:
        self._client = client
        self._wanted = wanted
        self._asked: list[NodeAnswer] = []
        self._stop = asyncio.Event()

    async def run(self, asked: list[NodeAnswer]) -> int:
        self._asked = asked
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(each, self._stop.set)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        with _full_screen():
            loop.add_reader(sys.stdin.fileno(), self._key)
            try:
                await self._redraw_until_stopped()
            finally:
                loop.remove_reader(sys.stdin.fileno())
                loop.remove_signal_handler(signal.SIGWINCH)
        return 0

    async def _redraw_until_stopped(self) -> None:
        while not self._stop.is_set():
            self._draw()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wanted.every):
                    await self._stop.wait()
                    return
            asking = asyncio.ensure_future(ask_nodes(self._client, self._wanted.urls, self._wanted.token))
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if asking.done():
                self._asked = asking.result()
            else:
                asking.cancel()

    def _key(self) -> None:
        typed = os.read(sys.stdin.fileno(), 64)
        if not typed or any(key in typed for key in (b"q", b"Q", b"\x03", b"\x04")):
            self._stop.set()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        shown = [_head(self._wanted), Line(""), *lines(self._asked, size.columns)]
        fit = fitted(shown, size.columns, max(1, size.lines - 1))
        text = "".join(f"{line}{REST_OF_LINE}\n" for line in printed(fit, colours=not os.environ.get("NO_COLOR")))
        sys.stdout.write(TOP + text + REST_OF_SCREEN)
        sys.stdout.flush()


@contextlib.contextmanager
def _full_screen() -> Iterator[None]:
    """Context manager: use the alternate screen, and read keys unbuffered without echo; at the end restore the
    terminal."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    sys.stdout.write(ENTER)
    try:
        tty.setcbreak(keyboard)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
