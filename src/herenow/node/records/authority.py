"""May this node decide now, and under which epoch?

A node decides only while it holds its lease and only in shards that are whole. Both change in few places (`lease`,
`healing`) and are asked in one (`decide`). Epochs are random; an address means nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from secrets import token_bytes
from typing import Protocol

from herenow.core.record import EPOCH_BYTES
from herenow.kit.clock import Clock


def new_epoch() -> str:
    return urlsafe_b64encode(token_bytes(EPOCH_BYTES)).decode()


class OnLoss(Protocol):
    """Told that a shard does not have what we know it had, or says so itself."""

    def __call__(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """`row` is that of our fence, if that told. `asked`: by a question of this monotonic time, whose answer may have
        been on its way for long."""


class Standing:
    def __init__(self, clock: Clock, node_lease: float, make_epoch: Callable[[], str] = new_epoch) -> None:
        self._clock = clock
        self._node_lease = node_lease
        self._make_epoch = make_epoch
        self.epoch = make_epoch()
        self.renewed = float("-inf")
        """Monotonic time of the last renewal that was asked for and granted."""
        self.retired = False
        """A shard said that this epoch has ended there."""
        self.left = False
        """This node stops, and gives its epoch up shard by shard."""
        self.closed_shards: set[int] = set()

    def may_decide(self, shard: int) -> bool:
        return shard not in self.closed_shards and self.holds_lease

    @property
    def holds_lease(self) -> bool:
        """Not sure of it from two thirds on: an observer may be about to mark us."""
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
