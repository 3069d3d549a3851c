"""Figures of this node for the last five minutes, in slots of two seconds.

Counters (`metrics`) have totals since the start; this keeps their differences. Slots begin at the same times of the store's
clock in every process, so those of several workers can be added. A slot is published when it is over.
"""

from __future__ import annotations

from collections import deque
from operator import sub
from typing import Any, Protocol

from msgspec import Struct

from herenow.core.model import Status
from herenow.kit.clock import Clock
from herenow.node.metrics import Metrics

STEP = 2_000
"""Milliseconds of a slot."""

KEPT = 150

LOOK = 1.0
"""Seconds between two calls of `look`: at least one falls into each slot of a node that keeps up."""


COUNTED = ("changes", "deliveries", "frames", "beats", "refusals", "conflicts", "engine_errors", "ledger_errors")


class Sample(Struct, frozen=True):
    """Counts of a slot, and gauges at its end."""

    at: int
    """Start, in epoch milliseconds of the store's clock; a multiple of `STEP`."""
    seconds: float
    """Time that the counts cover: about `STEP`, more if the process was suspended before."""
    changes: int
    deliveries: int
    frames: int
    beats: int
    refusals: int
    conflicts: int
    engine_errors: int
    ledger_errors: int
    delivery: tuple[int, ...]
    """Deliveries by duration; `metrics.BOUNDS` has the bounds."""
    connections: int
    online: int
    busy: int
    away: int
    ledger_backlog: int
    stale_views: int


class CountsBacklog(Protocol):
    @property
    def backlog(self) -> int: ...


class CountsStaleViews(Protocol):
    @property
    def stale_views(self) -> int: ...


class StatsHistory:
    def __init__(self, metrics: Metrics, clock: Clock, records: CountsBacklog, delivery: CountsStaleViews) -> None:
        self._metrics = metrics
        self._clock = clock
        self._records = records
        self._delivery = delivery
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._number = clock.now() // STEP
        self._began = clock.monotonic()
        self._had = self._counted()
        self._took = list(metrics.delivery_seconds.counts)

    def look(self) -> None:
        """End the present slot of two seconds and keep its figures, when its time is over. Call every `LOOK`
        seconds."""
        number = self._clock.now() // STEP
        if number <= self._number:
            return
        now, has, took = self._clock.monotonic(), self._counted(), list(self._metrics.delivery_seconds.counts)
        users = self._metrics.users
        self._samples.append(
            Sample(
                at=(number - 1) * STEP,
                seconds=now - self._began,
                delivery=tuple(map(sub, took, self._took)),
                connections=self._metrics.connections,
                online=users[Status.ONLINE],
                busy=users[Status.BUSY],
                away=users[Status.AWAY],
                ledger_backlog=self._records.backlog,
                stale_views=self._delivery.stale_views,
                **{name: has[name] - self._had[name] for name in COUNTED},
            )
        )
        self._number, self._began, self._had, self._took = number, now, has, took

    def since(self, at: int) -> list[Sample]:
        """Return the figures of the slots that began after `at` (ms), oldest first."""
        return [sample for sample in self._samples if sample.at > at]

    def _counted(self) -> dict[str, Any]:
        counted = self._metrics
        return {
            "changes": counted.changes,
            "deliveries": counted.deliveries,
            "frames": counted.frames,
            "beats": counted.beats_accepted + counted.beats_dropped,
            "refusals": counted.refusals.total(),
            "conflicts": counted.conflicts,
            "engine_errors": counted.engine_errors,
            "ledger_errors": counted.ledger_errors,
        }
