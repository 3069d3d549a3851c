"""An application that does not answer is left alone for a moment, so that nobody waits for it in vain.

After `PATIENCE` failures in a row nothing is sent for a while, which doubles with every further failure; then a single
question finds out. One answer, and all is forgotten. Time is an argument (monotonic seconds).
"""

from __future__ import annotations

PATIENCE = 3
"""Failures in a row."""

SHORTEST = 0.5
LONGEST = 5.0
"""Seconds; the longest is also how late a return is noticed."""


class Rest:
    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0
        self._trying = False

    def admits(self, now: float) -> bool:
        """Whether something may be sent now. Who is admitted says how it went."""
        if self._failures < PATIENCE:
            return True
        if self._trying or now < self._until:
            return False
        self._trying = True
        return True

    def answered(self) -> None:
        self._failures = 0
        self._trying = False

    def failed(self, now: float) -> None:
        self._trying = False
        self._failures += 1
        beyond = self._failures - PATIENCE
        if beyond >= 0:
            self._until = now + min(SHORTEST * 2 ** min(beyond, 10), LONGEST)

    def given_up(self) -> None:
        """It was admitted, but says nothing about the application."""
        self._trying = False
