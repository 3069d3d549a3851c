"""Durable facts: `open_ledger` chooses the ledger that a URL names.

A ledger's promises are in `herenow.ports.Ledger`, the suite that checks them in `herenow_testing.contracts.ledger`. A new
ledger is a package and a line in `LEDGERS`.

Ledgers are imported when a URL asks for them: commands that need none start without SQLAlchemy, an SQLite ledger without
asyncpg.
"""

from collections.abc import Callable

from herenow.errors import ConfigurationError
from herenow.ports import Ledger

__all__ = ["LEDGERS", "open_ledger"]


def open_ledger(url: str) -> Ledger:
    """The ledger that this URL names, not yet opened: `await ledger.open()` is the caller's."""
    scheme, separator, place = url.partition("://")
    choose = LEDGERS.get(scheme)
    if not separator or choose is None:
        # Only the scheme is repeated: a URL may hold a password.
        said = f"ledger {scheme + separator!r}" if separator else "a ledger without a scheme"
        allowed = ", ".join(f"{name}://" for name in LEDGERS)
        raise ConfigurationError(f"{said} is not known: allowed is {allowed} (such as sqlite:///herenow.db).")
    return choose(place)


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
"""Scheme → what makes a ledger of the rest of the URL."""
