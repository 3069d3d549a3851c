"""Read the schema revision of a database, and upgrade the schema with alembic (imported only when needed).

Migrations run on the caller's connection and in its transaction: all of them are applied, or none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table

from herenow.errors import ConfigurationError
from herenow.ledgers.sql.schema import NEWEST, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

_one_at_a_time = threading.Lock()
"""Needed because alembic passes the running migration to its scripts in module globals."""


def found(connection: Connection) -> str | None:
    """Return the schema revision of the database; None if it has no ledger tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    return revision


def upgrade(connection: Connection, to: str = "head") -> None:
    """Upgrade the database schema to the revision `to`; blocks while another thread upgrades one. Raises
    `ConfigurationError` if the database has an unknown revision."""
    with _one_at_a_time:
        upgrade_exclusively(connection, to)


@asynccontextmanager
async def exclusive() -> AsyncIterator[None]:
    """Hold the lock of `upgrade`, as a context manager that does not block the event loop while it waits for the
    lock."""
    while not _one_at_a_time.acquire(blocking=False):  # noqa: ASYNC110 - threads have no event of ours
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        _one_at_a_time.release()


def upgrade_exclusively(connection: Connection, to: str = "head") -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _config()
    revision = found(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise unknown(revision)
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def unknown(revision: str) -> ConfigurationError:
    return ConfigurationError(
        f"The database has schema {revision!r}, but this herenow knows none newer than {NEWEST!r}: "
        "run the version that wrote it, or a newer one."
    )


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "herenow.ledgers:migrations")
    config.set_main_option("path_separator", "os")
    return config
