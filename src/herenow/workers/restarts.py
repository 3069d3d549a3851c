"""A worker has ended by itself: start another at once, after a while, or not at all?

The first death is an accident. One that follows within `STEADY` seconds of a start is not: each is followed by a longer
pause, and after `PAUSES` of them in a row it is not going to live, and whoever watches the whole must hear of it.

One that the system does not start at all (no memory, no descriptor, no process left) is none of these: it is tried again
for ever, because to give up would end those that live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

STEADY = 10.0
"""Seconds a worker must have lived for its death to be an accident."""

PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each new start, while they die at once."""


class Restarts:
    """The deaths of one worker."""

    def __init__(self, steady: float = STEADY, pauses: Sequence[float] = PAUSES) -> None:
        self._steady = steady
        self._pauses = pauses
        self.in_a_row = 0

    def pause_after(self, lived: float) -> float | None:
        """Seconds to wait before it is started again; None: it is given up."""
        if lived >= self._steady:
            self.in_a_row = 0
        self.in_a_row += 1
        return self._pauses[self.in_a_row - 1] if self.in_a_row <= len(self._pauses) else None

    def pause_while_away(self) -> float:
        """It could not start because a service is out of reach: that is not its fault, and may take long."""
        return self._pauses[-1]

    def pauses_between_tries(self) -> Iterator[float]:
        """Seconds to wait after each try to start it that the system refused: longer and longer, but never long."""
        return chain(self._pauses[1:], repeat(self._pauses[-1]))
