"""Translate SQLite errors into ours.

At open, errors that the operator must fix (not an SQLite file, not writable) become `ConfigurationError`. Other errors
(locked, full, disk failure), and all of them while running, become `Unavailable`. Errors that only a bug in our statements
can cause are raised unchanged.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from herenow.errors import ConfigurationError, Unavailable

OURS = (
    *(ProgrammingError, IntegrityError, DataError, NotSupportedError),
    *(sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError, sqlite3.NotSupportedError),
)
"""Errors that only a bug of ours causes: SQLAlchemy's, and the driver's own for queries that bypass SQLAlchemy."""

LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

NO_RIGHTS = "cannot be written or created: give the user who runs herenow the right to write {path} and its directory"
TO_FIX = {
    sqlite3.SQLITE_CANTOPEN: NO_RIGHTS,
    sqlite3.SQLITE_PERM: NO_RIGHTS,
    sqlite3.SQLITE_READONLY: NO_RIGHTS,
    sqlite3.SQLITE_NOTADB: "is not an SQLite database: move it away, or name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a copy, or move it away to start with an empty one",
}
"""SQLite error code → advice to the operator at open. It completes the sentence "The ledger …"."""


def while_running(error: Exception) -> Exception:
    if isinstance(error, OURS):
        return error
    return Unavailable(f"The database cannot be used: {_text(error)}.")


def at_open(error: Exception, path: Path | None) -> Exception:
    advice = TO_FIX.get(_code(error))
    if advice is None:
        return while_running(error)
    return ConfigurationError(f"The database {path} {advice.format(path=path)} ({_text(error)}).")


def is_locked(error: Exception) -> bool:
    return _code(error) in LOCKED


def _code(error: Exception) -> int:
    """Return the primary SQLite error code of an exception; 0 if it has none."""
    code: int = getattr(_driver(error), "sqlite_errorcode", 0)
    return code & 0xFF


def _text(error: Exception) -> str:
    return str(_driver(error))


def _driver(error: Exception) -> BaseException:
    return (error.orig or error) if isinstance(error, DBAPIError) else error
