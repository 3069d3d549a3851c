"""When to restart a worker that has ended: at once, after a pause, or not at all.

A first death is followed by a restart at once. Further deaths within `STEADY` seconds of a start are followed by longer and
longer pauses; after all of `PAUSES` the supervisor gives up and ends, so that its own supervisor notices.

A process that the system cannot start (no memory, descriptor or process left) is retried for ever, because giving up would
end the workers that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

STEADY = 10.0  # seconds after which a worker that dies counts as having run well
PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0)  # seconds before each restart, by number of deaths in a row


class Restarts:
    def __init__(self, steady: float = STEADY, pauses: Sequence[float] = PAUSES) -> None:
        self._steady = steady
        self._pauses = pauses
        self.in_a_row = 0

    def pause_after(self, lived: float) -> float | None:
        """Count the death of a worker that lived for `lived` seconds. Returns the seconds to wait before its restart;
        None: give up."""
        if lived >= self._steady:
            self.in_a_row = 0
        self.in_a_row += 1
        return self._pauses[self.in_a_row - 1] if self.in_a_row <= len(self._pauses) else None

    def pause_while_away(self) -> float:
        """Return the seconds to wait before the restart of a worker that could not start because a service is
        unreachable. It is not counted as a death."""
        return self._pauses[-1]

    def pauses_between_tries(self) -> Iterator[float]:
        """Yield the seconds to wait after each attempt to start a process that the system refused: growing up to the
        last of the pauses, without end."""
        return chain(self._pauses[1:], repeat(self._pauses[-1]))
