"""What SQLite's errors mean to us: whose turn is it to do something?

While opening, a file that is no ledger, or that may not be written, is the operator's to fix. Everything else (locked,
full, the disk fails, and any of the former while running) is trouble that may pass: `Unavailable`. What can only be a
mistake in our statements is left as it is.
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
"""By SQLAlchemy's names, and by the driver's where a question goes to it directly."""

LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

NO_RIGHTS = "cannot be written or created: give the user who runs herenow the right to write {path} and its directory"
TO_FIX = {
    sqlite3.SQLITE_CANTOPEN: NO_RIGHTS,
    sqlite3.SQLITE_PERM: NO_RIGHTS,
    sqlite3.SQLITE_READONLY: NO_RIGHTS,
    sqlite3.SQLITE_NOTADB: "is not an SQLite database: move it away, or name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a copy, or move it away to start with an empty one",
}
"""What an operator can do about an error at open."""


def while_running(error: Exception) -> Exception:
    if isinstance(error, OURS):
        return error
    return Unavailable(f"The ledger cannot be used: {_said(error)}.")


def at_open(error: Exception, path: Path | None) -> Exception:
    advice = TO_FIX.get(_code(error))
    if advice is None:
        return while_running(error)
    return ConfigurationError(f"The ledger {path} {advice.format(path=path)} ({_said(error)}).")


def is_locked(error: Exception) -> bool:
    return _code(error) in LOCKED


def _code(error: Exception) -> int:
    """The primary code; 0 where SQLite gave none."""
    code: int = getattr(_driver(error), "sqlite_errorcode", 0)
    return code & 0xFF


def _said(error: Exception) -> str:
    return str(_driver(error))


def _driver(error: Exception) -> BaseException:
    return (error.orig or error) if isinstance(error, DBAPIError) else error
