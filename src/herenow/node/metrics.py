"""Counters of a node: plain integers, because hot paths write them. `api/ops/prometheus` exports them. No label per user."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


@dataclass(slots=True, eq=False)
class Histogram:
    """A histogram with weighted observations: one fan-out of 10 000 sends is one call."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.sum += seconds * times


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the seconds within which this share (0 to 1) of the observations lies, at most the last of `BOUNDS`. None:
    no observations. `counts`: observations per bound, as in `Histogram`."""
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


@dataclass(slots=True, eq=False)
class Metrics:
    connections: int = 0
    sessions: int = 0
    streams: int = 0
    beats_accepted: int = 0
    beats_dropped: int = 0
    changes: int = 0  # public changes this node committed
    commits: int = 0
    conflicts: int = 0
    doubtful: int = 0  # commits without an answer
    deliveries: int = 0  # status values handed to sockets; several may share a frame
    frames: int = 0
    delivery_seconds: Histogram = field(default_factory=Histogram)
    wake_seconds: Histogram = field(default_factory=Histogram)  # delay between a wake-up time and its decision
    refusals: Counter[str] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    stream_ends: Counter[str] = field(default_factory=Counter)
    """By the code in the stream's last event; `client`: closed by the client."""
    connections_refused: Counter[str] = field(default_factory=Counter)
    """Connections closed as soon as they were accepted, by the limit that was reached."""
    connections_cut: Counter[str] = field(default_factory=Counter)
    """Connections closed because their peer took too long, by what was awaited."""
    accept_errors: int = 0
    reading_pauses: Counter[str] = field(default_factory=Counter)
    """Times that the node stopped reading from a client, by the limit that was reached."""
    log_gaps: int = 0
    shards_lost: int = 0
    epochs: int = 0  # new epochs after a lost lease
    ledger_errors: int = 0
    unknown_pairs: int = 0  # relation requests without an answer; the pair appears offline
    engine_errors: int = 0
    typing: int = 0
    given_up: Counter[str] = field(default_factory=Counter)  # updates shed under overload, by kind
    users: Counter[int] = field(default_factory=Counter)  # users per public status, in the whole store
