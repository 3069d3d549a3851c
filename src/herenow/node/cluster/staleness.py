"""What do we no longer know to be true, and why?

A shard is stale when it has lost something (`healing`), when we have not heard from the store (`tail`), and when we may not
decide (`lease`). Each of them says so for itself; those who look are told when the first doubt comes and when the last
one goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from herenow.node.delivery import Delivery


class StaleReason(Enum):
    SHARD_LOST = auto()
    """The shard does not have what it had."""
    UNVERIFIED = auto()
    """The log is another than the one we read, or we missed entries of it: what we know may differ from the store."""
    LOG_SILENT = auto()
    """We do not hear what others commit."""
    NO_LEASE = auto()
    """We hold no lease and decide nothing. Where nobody can renew theirs, all that happens waits on every node, and a log
    that says nothing new means nothing."""


class Staleness:
    def __init__(self, delivery: Delivery, shards: int) -> None:
        self._delivery = delivery
        self._reasons: list[set[StaleReason]] = [set() for _ in range(shards)]

    @property
    def shards(self) -> range:
        return range(len(self._reasons))

    def mark_stale(self, shards: Iterable[int], why: StaleReason) -> None:
        for shard in shards:
            self._reasons[shard].add(why)
            self._delivery.set_stale(shard, stale=True)

    def clear(self, shards: Iterable[int], why: StaleReason) -> None:
        for shard in shards:
            self._reasons[shard].discard(why)
            self._delivery.set_stale(shard, stale=bool(self._reasons[shard]))
