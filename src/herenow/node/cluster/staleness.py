"""What do we no longer know to be true, and why?

A shard is stale when it has lost something (`healing`), when we have not heard from the store (`tail`), and when we may not
decide (`lease`). Each of them says so for itself; those who look are told when the first doubt comes and when the last
one goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from herenow.node.delivery.hub import Hub


class Doubt(Enum):
    LOST = auto()
    """The shard does not have what it had."""
    DEAF = auto()
    """We do not hear what others commit."""
    BOUND = auto()
    """We hold no lease and decide nothing. Where nobody can renew theirs, all that happens waits on every node, and a log
    that says nothing new means nothing."""


class Freshness:
    def __init__(self, hub: Hub, shards: int) -> None:
        self._hub = hub
        self._doubts: list[set[Doubt]] = [set() for _ in range(shards)]

    @property
    def shards(self) -> range:
        return range(len(self._doubts))

    def doubt(self, shards: Iterable[int], why: Doubt) -> None:
        for shard in shards:
            self._doubts[shard].add(why)
            self._hub.set_stale(shard, stale=True)

    def trust(self, shards: Iterable[int], why: Doubt) -> None:
        for shard in shards:
            self._doubts[shard].discard(why)
            self._hub.set_stale(shard, stale=bool(self._doubts[shard]))
