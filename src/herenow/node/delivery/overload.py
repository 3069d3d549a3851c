"""Does this node keep up? Measured by how late its event loop comes back to something that is to be done every so often.

The loop does one thing at a time, so its lateness is what every client feels, whatever the cause: too many frames, too
large a fan-out, a machine that gives its time to others. The worst of late counts and fades from look to look, so that a
level holds for a second or two after its cause and a single slow moment is soon forgotten. What is given up at which
lateness stands in `core.limits`.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.core.limits import Shed, shed_level
from herenow.kit.clock import Clock

FADE = 0.6
"""What is left of a lateness at the next look."""

WORST = 2.0
"""Seconds: a process that was stopped for minutes is not late for minutes."""

log = structlog.get_logger(__name__)


class Overload:
    def __init__(self, clock: Clock, every: float, on_level: Callable[[Shed], None]) -> None:
        self._clock = clock
        self._every = every
        self._on_level = on_level
        self._looked_at: float | None = None
        self.late = 0.0
        """Seconds, the worst of late."""
        self.level = Shed.NOTHING

    def look(self) -> None:
        """To be called every so many seconds, if the loop can."""
        now = self._clock.monotonic()
        late = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at - self._every)
        self._looked_at = now
        self.late = max(min(late, WORST), self.late * FADE)
        present, self.level = self.level, shed_level(self.level, self.late)
        if self.level is not present:
            log.warning("overload", given_up=self.level.name.lower(), late=round(self.late, 3))
            self._on_level(self.level)
