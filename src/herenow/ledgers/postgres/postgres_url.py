"""Where is the PostgreSQL of this URL, and how is it named without its password?

The URL is PostgreSQL's own and goes to the driver as it is, query included (sslmode and the rest); only its hosts are
taken apart, because each of them is tried with a deadline of its own (see `connector`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from herenow.errors import ConfigurationError

UNREADABLE = (
    "The ledger's URL cannot be read: write postgresql://user:password@host:5432/database, and what is special in the "
    "password by its number (@ is %40, / is %2F, # is %23)."
)
"""Says nothing of what was written: it may be parts of a password."""

DEFAULT_PORT = 5432


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    url: str = field(repr=False)
    """With everything in it, the password too."""
    hosts: tuple[tuple[str, int], ...]
    """Tried in this order; none: wherever the driver looks by itself."""
    shown: str
    """For sentences and logs."""

    def __str__(self) -> str:
        return self.shown


def parse_postgres_url(rest: str) -> PostgresUrl:
    """`rest` is what follows the scheme."""
    url = f"postgresql://{rest}"
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ConfigurationError(UNREADABLE)
    parts = _split(url)
    user, _, hosts = parts.netloc.rpartition("@")
    database = parts.path.removeprefix("/")
    if parts.fragment or re.search(r"[@/:]", database):  # somebody's password was cut in two
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
