"""Databases for durable data. `ports.Ledger` is their contract; to add one, add a package and an entry in `LEDGERS`.

A ledger is imported only when a URL names it, so that other commands start without SQLAlchemy or asyncpg.
"""

from collections.abc import Callable

from herenow.errors import ConfigurationError
from herenow.ports import Ledger

__all__ = ["LEDGERS", "open_ledger"]


def open_ledger(url: str) -> Ledger:
    """Create the ledger object for a URL; the caller must then `await ledger.open()`. Raises `ConfigurationError` for
    an unknown or invalid URL."""
    scheme, separator, place = url.partition("://")
    factory = LEDGERS.get(scheme)
    if not separator or factory is None:
        # The message has only the scheme: a URL may contain a password.
        named = f"ledger {scheme + separator!r}" if separator else "a database URL without a scheme"
        allowed = ", ".join(f"{name}://" for name in LEDGERS)
        raise ConfigurationError(f"{named} is not supported: allowed is {allowed} (such as sqlite:///herenow.db).")
    return factory(place)


def _sqlite(place: str) -> Ledger:
    from herenow.ledgers.sqlite import SqliteLedger

    if place in ("", "/:memory:"):
        return SqliteLedger(None)
    if not place.startswith("/") or place == "/":
        raise ConfigurationError(
            f"ledger 'sqlite://{place}' names no file: write sqlite:///herenow.db (beside the current directory's "
            "files), sqlite:////var/lib/herenow.db (absolute) or sqlite:// (in memory)."
        )
    return SqliteLedger(place.removeprefix("/"))


def _postgresql(place: str) -> Ledger:
    from herenow.ledgers.postgres import PostgresLedger, parse_postgres_url

    return PostgresLedger(parse_postgres_url(place))


LEDGERS: dict[str, Callable[[str], Ledger]] = {"sqlite": _sqlite, "postgresql": _postgresql, "postgres": _postgresql}
"""URL scheme → factory. The factory gets the part of the URL after `://`."""
