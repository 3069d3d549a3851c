"""Ledger checks of `herenow doctor`: access, schema version, free disk space. They change nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from herenow.cli.doctor.findings import Finding, advice, fine, problem
from herenow.errors import HerenowError
from herenow.settings import Settings
from herenow.settings.model import POSTGRESQL, without_password

if TYPE_CHECKING:
    from herenow.ledgers.postgres import Diagnostics

DATABASE_SLACK = 5.0  # seconds a database's clock may differ: its timestamps are only read by people
FULL_DISK = 1024**2  # bytes: not enough for SQLite's write-ahead log
LITTLE_ROOM = 200 * 1024**2  # bytes


def ledger(settings: Settings) -> Iterator[Finding]:
    path = settings.ledger_path
    if settings.ledger.startswith(POSTGRESQL):
        yield from _in_a_server(settings.ledger)
    elif path is None:
        yield advice("database", "It is kept in memory: last seen, modes and relations are lost when the process ends.")
    elif not path.exists():
        yield _place_for(path)
    else:
        yield from _opened(settings.ledger, path)


def _place_for(path: Path) -> Finding:
    folder = path.absolute().parent
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return fine("database", f"{path} does not exist yet and is created at the first start.")
    return problem("database", f"{path} cannot be created: make sure that {folder} exists and is writable.")


def _in_a_server(url: str) -> Iterator[Finding]:
    try:
        found, newest, of_a_node = asyncio.run(_diagnosed(url))
    except HerenowError as error:
        yield problem("database", str(error))
        return
    yield fine("database", f"{without_password(url)} answers (PostgreSQL {found.version}).")
    if not found.survives_power_loss:
        yield advice("database", "fsync or full_page_writes is off: a power failure may damage it.")
    if not found.is_private:
        yield advice("database", "The connection is not encrypted: add sslmode=verify-full to the URL.")
    if found.connections_left < of_a_node:
        yield advice(
            "database",
            f"It has {max(found.connections_left, 0)} connections left, and a node takes up to {of_a_node}: "
            "raise max_connections.",
        )
    ahead = found.now - time.time()
    if abs(ahead) > DATABASE_SLACK:
        yield advice(
            "clock", f"The database's clock differs by {ahead:+.1f} s from this machine's: synchronise both with NTP."
        )
    yield _schema_in_a_server(found, newest)


def _schema_in_a_server(found: Diagnostics, newest: str) -> Finding:
    if found.revision is None and not found.may_create:
        return problem(
            "schema",
            "There is none yet, and this database user may not create one: run herenow migrate as a user who may.",
        )
    if found.revision is None:
        return fine("schema", "There is none yet; it is created at the first start.")
    if found.revision < newest:
        return problem(
            "schema", f"It is at {found.revision}, and {newest} is needed: run herenow migrate before the next start."
        )
    return _known_schema(found.revision, newest)


async def _diagnosed(url: str) -> tuple[Diagnostics, str, int]:
    from herenow.ledgers import open_ledger
    from herenow.ledgers.postgres import CONNECTIONS, PostgresLedger
    from herenow.ledgers.sql import NEWEST

    asked = open_ledger(url)
    assert isinstance(asked, PostgresLedger)
    return await asked.diagnose(), NEWEST, CONNECTIONS


def _opened(url: str, path: Path) -> Iterator[Finding]:
    try:
        current, newest = asyncio.run(_schema(url))
        _take_write_lock(path)
    except (HerenowError, sqlite3.Error, OSError) as error:
        yield problem("database", f"{path} cannot be used ({error}): check its owner, its permissions and the disk.")
        return
    yield fine("database", f"{path} can be opened and written.")
    yield from room(path, shutil.disk_usage(path.absolute().parent).free)
    if current is not None and current >= newest:  # revisions are numbered
        yield _known_schema(current, newest)
    else:
        yield advice(
            "schema",
            f"It is at {current or 'empty'}, the newest is {newest}: herenow migrate brings it up to date, "
            "or the next start does.",
        )


def room(path: Path, free: int) -> Iterator[Finding]:
    """Check the free space, in bytes, of the disk that holds the ledger file `path`."""
    remedy = "free some space, or last seen, modes and custom statuses have to wait in memory"
    if free < FULL_DISK:
        yield problem("database", f"The disk of {path} is full: {remedy}.")
    elif free < LITTLE_ROOM:
        yield advice("database", f"The disk of {path} has {free // 1024**2} MiB left: {remedy}.")


def _known_schema(current: str, newest: str) -> Finding:
    if current == newest:
        return fine("schema", f"Up to date ({newest}).")
    return problem(
        "schema", f"It is at {current}, but this herenow knows none newer than {newest}: run the version that wrote it."
    )


async def _schema(url: str) -> tuple[str | None, str]:
    from herenow.ledgers import open_ledger

    opened = open_ledger(url)
    try:
        return await opened.schema()
    finally:
        await opened.close()


def _take_write_lock(path: Path) -> None:
    """Start a write transaction on the SQLite file and roll it back. Raises `sqlite3.Error` if the file cannot be
    written, also on a read-only file system, which the file's mode does not show."""
    uri = path.absolute().as_uri() + "?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
