"""`herenow doctor`: checks whether a node can run here and whether the running one is healthy, and prints what to fix.

It changes nothing: it creates or migrates no database and generates no secret. A finding is fine, advice (exit code 0) or a
problem (exit code 1). `store_check`, `ledger_check` and `node_check` hold the checks of the store, the ledger and the node.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import SecretStr
from rich.console import Console
from rich.markup import escape

from herenow.cli.doctor.findings import Finding, Weight, advice, fine, problem
from herenow.cli.doctor.ledger_check import ledger
from herenow.cli.doctor.node_check import node
from herenow.cli.doctor.store_check import store
from herenow.cli.flags import with_settings
from herenow.errors import ConfigurationError, HerenowError
from herenow.secret import resolve_secrets, secret_path
from herenow.settings import Settings
from herenow.settings.model import MIN_SECRET_BYTES, without_password

EXPECTED_FILES = 10_240  # a socket is a file: 10 000 clients on a node, plus the node's own files
LEAST_FILES = 1_024  # the default limit of common systems
CLOCK_SLACK = 60.0  # seconds that a file's timestamp may be ahead of the clock (network file systems)
OLDEST_TIME = datetime(2025, 1, 1, tzinfo=UTC).timestamp()  # an earlier time means that the clock is wrong


@click.command()
@with_settings()
@click.pass_context
def doctor(ctx: click.Context, /, settings: Settings) -> None:
    """Check this installation and print what to fix.

    Checks the configuration, keys, live store, database, relations, clock, file limits and the node that runs on this
    machine. Changes nothing. The exit code is 1 if there is a problem."""
    findings = [
        *configuration(settings),
        *keys(settings),
        *store(settings),
        *ledger(settings),
        *relations(settings),
        *clock(settings.ledger_path, time.time()),
        *files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        *node(settings),
    ]
    console = Console(soft_wrap=True)
    for finding in findings:
        mark, colour = finding.weight.value
        console.print(f"[{colour}]{mark:8}[/]{finding.subject:14} {escape(finding.sentence)}")
    ctx.exit(int(any(finding.weight is Weight.PROBLEM for finding in findings)))


def configuration(settings: Settings) -> Iterator[Finding]:
    # A wrong value stops the command earlier, when the settings are loaded.
    yield fine("configuration", "All settings are valid; herenow config prints them.")
    for warning in settings.warnings:
        yield advice("configuration", warning)
    yield _secret(settings)


def keys(settings: Settings) -> Iterator[Finding]:
    """Check the JWKS (the public keys that tokens are verified with), if one is configured."""
    from herenow.transport.auth import BadKeys, describe_keys, key_source

    source = key_source(settings.jwks_url, settings.jwks_file)
    if source is None:
        return
    try:
        found, left_out = asyncio.run(describe_keys(source))
    except BadKeys as error:
        yield problem("jwks", f"{source.where} cannot be used: {error}.")
        return
    yield fine("jwks", f"{source.where} has keys: {found}.")
    for why in left_out:
        yield advice("jwks", f"Not used: {why}.")
    if not settings.jwt_issuer or not settings.jwt_audience:
        yield advice(
            "jwks",
            "Tokens that the issuer made for other applications may be accepted: set jwt_issuer and jwt_audience.",
        )


def relations(settings: Settings) -> Iterator[Finding]:
    where = without_password(settings.relations)
    if settings.relations == "open":
        yield advice("relations", "All users see each other (relations = open): is that intended?")
    if not settings.asks_the_application:
        return
    try:
        strangers_related = asyncio.run(_are_strangers_related(settings, settings.relations_secret))
    except HerenowError as error:
        yield problem("relations", f"{where} gave no valid answer: {error}")
        return
    if strangers_related:
        yield problem(
            "relations", f"{where} reports a relation of two made-up users: it must report none for unknown ids."
        )
    else:
        yield fine("relations", f"{where} answers.")
    yield _signature_checked(settings, where)


def clock(ledger_path: Path | None, now: float) -> Iterator[Finding]:
    written = _last_written(ledger_path)
    if now < OLDEST_TIME:
        yield problem("clock", f"It shows {_date(now)}, which is too early: set it, and synchronise it with NTP.")
    elif written is not None and written > now + CLOCK_SLACK:
        yield problem("clock", f"It shows {_date(now)}, but the database was written at {_date(written)}: set it.")
    else:
        yield fine("clock", f"It shows {_date(now)}.")


def files(limit: int) -> Iterator[Finding]:
    remedy = f"raise it, for example to {EXPECTED_FILES} (ulimit -n, or LimitNOFILE= of the systemd unit)"
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    if limit == resource.RLIM_INFINITY or limit >= EXPECTED_FILES:
        yield fine("file limit", f"This process may open {shown} files; every connection is one.")
    elif limit >= LEAST_FILES:
        yield advice("file limit", f"Only {shown} files may be open, one per connection: {remedy}.")
    else:
        yield problem("file limit", f"Only {shown} files may be open, one per connection: {remedy}.")


def _secret(settings: Settings) -> Finding:
    path = secret_path(settings)
    if not settings.accepts_secret:
        return fine("secret", "None, and none is needed: tokens are verified with public keys.")
    if settings.secret is not None:
        return fine("secret", f"Configured by {settings.source_of('secret')}.")
    if path is None or not path.exists():
        return fine("secret", "None is configured: one is generated at the first start.")
    try:
        resolve_secrets(settings)
    except ConfigurationError as error:
        return problem("secret", str(error))
    return fine("secret", f"Generated earlier, kept in {path}.")


def _signature_checked(settings: Settings, where: str) -> Finding:
    try:
        asyncio.run(_are_strangers_related(settings, SecretStr(secrets.token_urlsafe(MIN_SECRET_BYTES))))
    except HerenowError:
        return fine("relations", f"{where} rejects a request with a wrong signature.")
    return problem(
        "relations",
        f"{where} answers a request with a wrong signature: anyone can read from it who is related to whom.",
    )


async def _are_strangers_related(settings: Settings, secret: SecretStr | None) -> bool:
    """Ask the application about two made-up users, in a request signed with `secret`; True if it reports a relation."""
    from herenow.ports import Relation, SourceHealth
    from herenow.relations.callback import CallbackRelations

    one, other = (f"herenow-doctor-{secrets.token_hex(8)}" for _ in range(2))
    now = round(time.time() * 1000)
    key = "" if secret is None else secret.get_secret_value()
    source = CallbackRelations(settings.relations, key, now=lambda: now, health=SourceHealth(), silent=True)
    try:
        return await source.between(one, [other], now) != [Relation()]
    finally:
        await source.close()


def _last_written(path: Path | None) -> float | None:
    try:
        return None if path is None else path.stat().st_mtime
    except OSError:
        return None


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds")
