"""Keeps which shards are stale, and for which reasons.

A shard is stale if it lost data (`shard_recovery`), if its log was missed or does not answer (`log_reader`), or if this node
may not decide (`lease`). Each of them sets and clears its own reason; viewers are informed when the first reason is set and
when the last one is cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from herenow.node.delivery import Delivery


class StaleReason(Enum):
    SHARD_LOST = auto()
    """The shard lost data."""
    UNVERIFIED = auto()
    """Entries of the log were missed, or the log is another branch: known records may differ from the store."""
    LOG_SILENT = auto()
    """The log does not answer: commits of other nodes are not seen."""
    NO_LEASE = auto()
    """This node holds no lease and decides nothing. If no node can renew, changes wait on every node, so a log without new
    entries proves nothing."""


class Staleness:
    def __init__(self, delivery: Delivery, shards: int) -> None:
        self._delivery = delivery
        self._reasons: list[set[StaleReason]] = [set() for _ in range(shards)]

    @property
    def shards(self) -> range:
        return range(len(self._reasons))

    def has(self, shard: int, why: StaleReason) -> bool:
        """True while the shard is stale for this reason."""
        return why in self._reasons[shard]

    def mark_stale(self, shards: Iterable[int], why: StaleReason) -> None:
        for shard in shards:
            self._reasons[shard].add(why)
            self._delivery.set_stale(shard, stale=True)

    def clear(self, shards: Iterable[int], why: StaleReason) -> None:
        for shard in shards:
            self._reasons[shard].discard(why)
            self._delivery.set_stale(shard, stale=bool(self._reasons[shard]))
