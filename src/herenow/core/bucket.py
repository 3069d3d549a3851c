"""May this happen now, if it may happen so often and no more? A token bucket, as one number.

The number is when the bucket will be full again. A full bucket is no number at all, so whoever keeps many of them keeps
only those that were used lately. Pure: time is an argument, and whose bucket it is is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """One every so many milliseconds, up to `burst` at once after a rest."""

    every: int
    burst: int

    @property
    def fills_within(self) -> int:
        """Milliseconds after which any bucket that is left alone is full."""
        return self.every * self.burst


def take(full_at: int | None, now: int, rate: Rate) -> tuple[int, int]:
    """(when the bucket is full again, how long to wait): taken if there is nothing to wait for, otherwise unchanged.
    `full_at` None, or past: it is full."""
    full_at = now if full_at is None else max(full_at, now)
    wait = full_at + rate.every - rate.fills_within - now
    return (full_at, wait) if wait > 0 else (full_at + rate.every, 0)
