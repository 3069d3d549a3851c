"""Sources of relations: the ledger, an open policy (everybody is related to everybody), or the application's callback.

`open_relations` chooses one by the setting `relations`. A new source (an ORM, a graph service) is one module that implements
`ports.Relations` and one line in `SOURCES`. How long a relation is believed and what follows from it is decided in
`node.access`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from herenow.errors import ConfigurationError
from herenow.ports import Ledger, Relations, SourceHealth
from herenow.relations.open import OpenRelations

__all__ = ["SOURCES", "OpenRelations", "SourceOptions", "open_relations"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a source may want to know; each takes what it needs."""

    where: str
    """The setting as it was given."""
    ledger: Ledger
    secret: str
    """Shared with the application; empty: none is configured."""
    now: Callable[[], int]
    """Epoch milliseconds."""
    health: SourceHealth


def open_relations(options: SourceOptions) -> AbstractAsyncContextManager[Relations]:
    """The source that the setting asks for; leaving lets go of its connections."""
    opener = SOURCES.get(options.where.partition("://")[0])
    if opener is None:
        raise ConfigurationError(f"relations {options.where!r} is not a source this version has: {', '.join(SOURCES)}.")
    return opener(options)


@asynccontextmanager
async def _ledger(options: SourceOptions) -> AsyncIterator[Relations]:
    yield options.ledger


@asynccontextmanager
async def _open(options: SourceOptions) -> AsyncIterator[Relations]:
    yield OpenRelations(options.ledger)


@asynccontextmanager
async def _callback(options: SourceOptions) -> AsyncIterator[Relations]:
    from herenow.relations.callback import CallbackRelations  # an HTTP client, which no other source needs

    source = CallbackRelations(options.where, options.secret, now=options.now, health=options.health)
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
