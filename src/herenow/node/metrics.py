"""What a node counts. Plain integers on the hot paths; `herenow.api.ops.health` turns them into Prometheus' words.

No label per user, ever. A reason to change it: something new is worth counting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""


class Histogram:
    """A histogram whose observations can carry a weight: one fan-out of 10 000 sends is one call."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.sum += seconds * times


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Seconds within which this share of the observations fell, between the bounds of the bucket where it lies; None: there
    were none. Beyond the last bound nothing is known but that it was more."""
    total = sum(counts)
    if not total:
        return None
    wanted, before = share * total, 0
    for index, bound in enumerate(BOUNDS):
        if before + counts[index] >= wanted:
            low = BOUNDS[index - 1] if index else 0.0
            return low + (bound - low) * (wanted - before) / counts[index]
        before += counts[index]
    return BOUNDS[-1]


class Metrics:
    def __init__(self) -> None:
        self.connections = 0
        self.sessions = 0
        self.streams = 0
        self.beats_accepted = 0
        self.beats_dropped = 0
        self.changes = 0
        """Public changes this node committed."""
        self.commits = 0
        self.conflicts = 0
        self.doubtful = 0
        """Commits whose outcome was unknown at first."""
        self.deliveries = 0
        """Status values handed to sockets; several may share a frame."""
        self.frames = 0
        self.delivery_seconds = Histogram()
        self.wake_seconds = Histogram()
        """How late a due wake-up was decided."""
        self.refusals: Counter[str] = Counter()
        self.closes: Counter[int] = Counter()
        self.stream_ends: Counter[str] = Counter()
        """By the code that the stream's last event carried; `client`: the client went."""
        self.connections_refused: Counter[str] = Counter()
        """Connections closed as soon as they were accepted, by the limit that was reached."""
        self.connections_cut: Counter[str] = Counter()
        """Connections closed because their peer took too long, by what was awaited."""
        self.accept_errors = 0
        self.log_gaps = 0
        self.shards_lost = 0
        self.epochs = 0
        """How often this node had to take a new epoch."""
        self.ledger_errors = 0
        self.unknown_pairs = 0
        """Times it could not be learned who may see whom, so that nothing was shown."""
        self.engine_errors = 0
        self.typing = 0
        self.given_up: Counter[str] = Counter()
        """What was given up because the node was late, by kind."""
        self.users: Counter[int] = Counter()
        """Users per public status, in the whole store; kept by the tail."""
