"""The amount of work: a full run, or a quick one that shows that everything works and roughly how fast."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.machine import most_sockets


@dataclass(frozen=True)
class Effort:
    repeats: int = 3
    quick: bool = False
    large: bool = False
    """Include sizes that take minutes to write."""

    @property
    def described(self) -> str:
        return "quick" if self.quick else f"{self.repeats} repeats" if self.repeats > 1 else "one repeat"

    def people(self, wanted: int) -> int:
        """A tenth in a quick run; never more than this machine has descriptors for."""
        wanted = wanted // 10 if self.quick else wanted
        possible = most_sockets()
        if wanted > possible:
            print(f"only {possible} of {wanted} connections: raise the descriptor limit", file=sys.stderr)
        return min(wanted, possible)

    def seconds(self, wanted: float) -> float:
        return wanted / 4 if self.quick else wanted

    def rounds(self, wanted: int) -> int:
        return max(2, wanted // 5) if self.quick else wanted
