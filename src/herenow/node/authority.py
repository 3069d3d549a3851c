"""Whether this node may decide now, and under which epoch: only while it holds its lease, and not in shards that lost data.
Written by `cluster` (`lease`, `shard_recovery`), read by `records` before every decision."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes

from herenow.core.record import EPOCH_BYTES
from herenow.kit.clock import Clock
from herenow.node.outages import Outages


def new_epoch() -> str:
    return urlsafe_b64encode(token_bytes(EPOCH_BYTES)).decode()


@dataclass(slots=True, eq=False)
class Authority:
    _clock: Clock
    _node_lease: float
    _make_epoch: Callable[[], str] = new_epoch
    epoch: str = field(init=False)
    renewed: float = field(init=False)  # monotonic time at which the last granted renewal was requested
    retired: bool = field(init=False)  # True: a shard refused this epoch as ended
    left: bool = False  # True: this node is stopping and gives up its epoch shard by shard
    closed_shards: set[int] = field(default_factory=set)
    """Shards that lost data and are being recovered: nothing is decided in them."""
    outages: Outages = field(init=False)

    def __post_init__(self) -> None:
        self.outages = Outages(self._clock, self._node_lease)
        self.begin_epoch()

    def may_decide(self, shard: int) -> bool:
        return shard not in self.closed_shards and self.holds_lease

    @property
    def holds_lease(self) -> bool:
        """True if this node may act under its lease: renewed less than two thirds of a lease ago, epoch not retired,
        node not stopping. After two thirds another node may be about to mark this one dead."""
        held = self._clock.monotonic() - self.renewed < self._node_lease * 2 / 3
        return held and not self.retired and not self.left

    @property
    def renewed_ago(self) -> float | None:
        """Seconds since this node last renewed its lease under the present epoch; None: not renewed yet."""
        return None if self.renewed == float("-inf") else self._clock.monotonic() - self.renewed

    def begin_epoch(self) -> str:
        self.epoch = self._make_epoch()
        self.renewed = float("-inf")
        self.retired = False
        return self.epoch
