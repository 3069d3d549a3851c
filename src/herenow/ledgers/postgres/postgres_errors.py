"""Translate PostgreSQL errors into ours, by the same rules as `sqlite_errors`.

At open, the message contains the server's error text. While running, that text is only logged, because the message may
reach clients. No message contains the full URL, which has the password.
"""

from __future__ import annotations

import os
import socket
from typing import TypeAlias

import asyncpg
from sqlalchemy.exc import DBAPIError

from herenow.errors import ConfigurationError, HerenowError, Unavailable
from herenow.ledgers.postgres.postgres_url import PostgresUrl


class Unfit(Exception):  # noqa: N818 - reads as what it is
    """The server answers, but cannot be used. `why` completes the sentence "The database …". `temporary` is the reason for
    clients if the condition may be temporary; None if the operator must fix it."""

    def __init__(self, why: str, *, temporary: str | None = None) -> None:
        super().__init__(why)
        self.temporary = temporary


Failure: TypeAlias = DBAPIError | asyncpg.PostgresError | asyncpg.InterfaceError | OSError | Unfit
"""Errors of the driver, wrapped by SQLAlchemy or not. A TimeoutError is an OSError."""

FAILURES = (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, Unfit)

OURS = ("0A", "21", "22", "23", "26", "2F", "34", "38", "39", "42", "44")
"""SQLSTATE classes that only a bug of ours causes, except for `TEMPORARY`."""

TEMPORARY = {"0A000", "42501", "42P01", "42703", "42P10"}
"""SQLSTATEs for revoked rights or changed tables, for example while a backup is restored."""

READ_ONLY = "25006"
NO_CONNECTION_LEFT = "53300"

RIGHTS = "docs/ledger.md says which ones it needs"
TO_FIX = {
    "28P01": "refused the password: check the user name and the password",
    "28000": "rejects this user: check the user name, and pg_hba.conf on the server",
    "3D000": "does not exist: create it, or name another one",
    "42501": f"does not grant its user enough rights: {RIGHTS}",
    "3F000": f"does not grant its user enough rights: {RIGHTS}",
    "42704": "does not know a parameter of the URL",
    READ_ONLY: "is read-only: name a database that can be written, or turn its default_transaction_read_only off",
}
"""SQLSTATE → advice to the operator at open. It completes the sentence "The database …"."""

LOST = "the connection was lost"
OTHERWISE = "its tables have changed"
REASONS = {
    "08": LOST,
    "28": "it rejects the login",
    "3D000": "it does not exist",
    "3F000": OTHERWISE,
    "42501": "its user lacks the right",
    "42P01": OTHERWISE,
    "42703": OTHERWISE,
    "53100": "its disk is full",
    NO_CONNECTION_LEFT: "it has no connection left",
    "55P03": "another process holds a lock for too long",
    "57014": "it took too long",
    "57P01": LOST,
    "57P02": LOST,
    "57P03": "it is starting or stopping",
    READ_ONLY: "it is read-only",
}
"""SQLSTATE or SQLSTATE class → reason for messages while running."""


def while_running(error: Failure) -> HerenowError | Failure:
    state = state_of(error)
    if state[:2] in OURS and state not in TEMPORARY:
        return error
    return Unavailable(f"The database cannot be used: {_reason(error)}.")


def at_open(error: Failure, url: PostgresUrl) -> HerenowError | Failure:
    if isinstance(error, Unfit):
        kind = ConfigurationError if error.temporary is None else Unavailable
        return kind(f"The database {url} {error}.")
    advice = TO_FIX.get(state_of(error))
    if advice is not None:
        return ConfigurationError(f"The database {url} {advice} ({error_text(error)}).")
    explained = while_running(error)
    if explained is error:
        return error
    reason, text = _reason(error), error_text(error)
    return Unavailable(f"The database {url} cannot be used: {reason if reason == text else f'{reason} ({text})'}.")


def may_be_repeated(error: Failure) -> bool:
    """Return True for a serialization conflict or a deadlock: the transaction was rolled back and may be retried."""
    return state_of(error) in ("40001", "40P01")


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE (PostgreSQL's error code) of an exception; empty if it did not come from the server."""
    return getattr(_driver(error), "sqlstate", None) or ""


def error_text(error: BaseException) -> str:
    """Return the error text of the server or the operating system, in one line and without a full stop."""
    driver = _driver(error)
    if isinstance(driver, TimeoutError):
        return "it did not answer in time"
    if isinstance(driver, OSError):
        return _system_error_text(driver)
    return " ".join(str(driver.args[0] if driver.args else driver).split()).rstrip(".")


def _reason(error: Failure) -> str:
    """Return the reason of a database error in words that clients may see."""
    state = state_of(error)
    if isinstance(_driver(error), OSError):
        return error_text(error)
    if isinstance(error, Unfit):
        return error.temporary or "it has changed"
    if not state:
        return LOST
    return REASONS.get(state) or REASONS.get(state[:2]) or f"it refuses ({state})"


def _system_error_text(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or " ".join(str(error).split()) or LOST
    return os.strerror(error.errno)


def _driver(error: BaseException) -> BaseException:
    return (error.orig or error) if isinstance(error, DBAPIError) else error
