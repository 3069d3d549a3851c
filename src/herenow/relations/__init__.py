"""Sources of relations: the ledger, an open policy (all users are related), or a callback to the application.

`open_relations` opens the one that the setting `relations` names. A new source (an ORM, a graph service) is one module that
implements `ports.Relations` and one line in `SOURCES`. `node.access` caches relations and draws conclusions from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from herenow.errors import ConfigurationError
from herenow.ports import Ledger, Relations, SourceHealth
from herenow.relations.open import OpenRelations
from herenow.settings import Settings

__all__ = ["SOURCES", "OpenRelations", "SourceOptions", "open_relations"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options for the openers; each uses those that it needs."""

    settings: Settings
    ledger: Ledger
    now: Callable[[], int]
    """Epoch milliseconds."""
    health: SourceHealth


def open_relations(options: SourceOptions) -> AbstractAsyncContextManager[Relations]:
    """Open the source of relations that the setting `relations` names. Leaving the context closes its connections.
    Raises `ConfigurationError` for an unknown source."""
    where = options.settings.relations
    opener = SOURCES.get(where.partition("://")[0])
    if opener is None:
        raise ConfigurationError(f"relations {where!r} is not a supported source: {', '.join(SOURCES)}.")
    return opener(options)


@asynccontextmanager
async def _ledger(options: SourceOptions) -> AsyncIterator[Relations]:
    yield options.ledger


@asynccontextmanager
async def _open(options: SourceOptions) -> AsyncIterator[Relations]:
    yield OpenRelations(options.ledger)


@asynccontextmanager
async def _callback(options: SourceOptions) -> AsyncIterator[Relations]:
    from herenow.relations.callback import CallbackRelations  # imports an HTTP client, which no other source needs

    secret = options.settings.relations_secret
    source = CallbackRelations(
        options.settings.relations,
        "" if secret is None else secret.get_secret_value(),
        now=options.now,
        health=options.health,
    )
    try:
        yield source
    finally:
        await source.close()


SOURCES: Mapping[str, Callable[[SourceOptions], AbstractAsyncContextManager[Relations]]] = {
    "ledger": _ledger,
    "open": _open,
    "https": _callback,
    "http": _callback,
}
