"""Parse a PostgreSQL URL: its hosts, for `connector`, and a text without the password. The driver gets the URL unchanged."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from herenow.errors import ConfigurationError

UNREADABLE = (
    "The database URL is not valid: write postgresql://user:password@host:5432/database, with special characters of "
    "the password percent-encoded (@ is %40, / is %2F, # is %23)."
)
"""Repeats no part of the URL, which may be part of a password."""

DEFAULT_PORT = 5432


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    url: str = field(repr=False)
    """The complete URL, with the password."""
    hosts: tuple[tuple[str, int], ...]
    """(host, port), tried in this order; empty: the driver's default."""
    shown: str
    """Without password and query, for messages and logs."""

    def __str__(self) -> str:
        return self.shown


def parse_postgres_url(rest: str) -> PostgresUrl:
    """Parse a PostgreSQL URL, of which `rest` is the part after `postgresql://`. Raises `ConfigurationError` if it is
    invalid."""
    url = f"postgresql://{rest}"
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ConfigurationError(UNREADABLE)
    parts = _split(url)
    user, _, hosts = parts.netloc.rpartition("@")
    database = parts.path.removeprefix("/")
    if parts.fragment or re.search(r"[@/:]", database):  # an unescaped character in the password split it
        raise ConfigurationError(UNREADABLE)
    name = user.partition(":")[0]
    shown = f"postgresql://{name + '@' if name else ''}{hosts}/{database}"
    return PostgresUrl(url, tuple(_host(each) for each in hosts.split(",") if hosts), shown)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigurationError(UNREADABLE) from None


def _host(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text)
    if found is None:
        raise ConfigurationError(UNREADABLE)
    return found[1].strip("[]"), int(found[2] or DEFAULT_PORT)
