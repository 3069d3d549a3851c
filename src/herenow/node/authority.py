"""Whether this node may decide now, and under which epoch.

A node decides only while it holds its lease, and only in shards that have not lost data. `cluster` writes these facts
(`lease`, `shard_recovery`), `records` asks for them before every decision. Epochs are random.
"""

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
    renewed: float = field(init=False)
    """Monotonic time at which the last granted renewal was requested."""
    retired: bool = field(init=False)
    """True: a shard refused this epoch as ended."""
    left: bool = False
    """True: this node is stopping and gives up its epoch shard by shard."""
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
        """False from two thirds of the lease on: another node may be about to mark this one dead."""
        held = self._clock.monotonic() - self.renewed < self._node_lease * 2 / 3
        return held and not self.retired and not self.left

    @property
    def renewed_ago(self) -> float | None:
        """Seconds; None: not yet under this epoch."""
        return None if self.renewed == float("-inf") else self._clock.monotonic() - self.renewed

    def begin_epoch(self) -> str:
        self.epoch = self._make_epoch()
        self.renewed = float("-inf")
        self.retired = False
        return self.epoch
