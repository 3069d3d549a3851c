"""Live stores: `make_engine` returns the engine for a URL.

`ENGINES` maps a URL scheme to a factory; a new engine is one package and one line here. `herenow.ports` defines what an
engine guarantees. The Redis engine is imported only when a URL needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from herenow.engines.memory import MemoryEngine, MemoryStore, wall_clock
from herenow.errors import ConfigurationError
from herenow.ports import Engine

__all__ = ["ENGINES", "EngineOptions", "make_engine"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options for the factories beside the URL; each factory uses those that it needs."""

    shards: int
    namespace: str
    capacity: int
    clock: Callable[[], int]
    """Returns epoch milliseconds; for engines without a server that has a clock."""


def make_engine(
    url: str,
    *,
    shards: int = 16,
    namespace: str = "herenow",
    capacity: int = 1_000_000,
    clock: Callable[[], int] = wall_clock,
) -> Engine:
    """Create the live store that a URL names, not yet connected (`Engine.open` connects it).

    `namespace`: prefix of all Redis keys; `capacity`: expected number of users; `clock`: returns epoch milliseconds,
    for the memory engine. Raises `ConfigurationError` for an unknown or invalid URL."""
    scheme, separator, _ = url.partition("://")
    factory = ENGINES.get(scheme)
    if factory is None or not separator:
        from herenow.engines.redis.client import without_password

        raise ConfigurationError(f"engine {without_password(url)!r} is not supported: {_known()}.")
    return factory(url, EngineOptions(shards, namespace, capacity, clock))


def _memory(url: str, options: EngineOptions) -> Engine:
    if url not in ("memory://", "memory:///"):
        raise ConfigurationError(f"engine {url!r}: memory:// has no host or path, it is inside this process.")
    return MemoryEngine(MemoryStore(options.shards, clock=options.clock))


def _redis(url: str, options: EngineOptions) -> Engine:
    from herenow.engines.redis import RedisEngine
    from herenow.engines.redis.client import parse_url

    return RedisEngine(parse_url(url), namespace=options.namespace, shards=options.shards, capacity=options.capacity)


ENGINES: Mapping[str, Callable[[str, EngineOptions], Engine]] = {
    "memory": _memory,
    "redis": _redis,
    "rediss": _redis,
    "redis+sentinel": _redis,
    "redis+cluster": _redis,
}


def _known() -> str:
    return ", ".join(f"{scheme}://" for scheme in ENGINES)
