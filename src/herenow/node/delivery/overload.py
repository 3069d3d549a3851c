"""Measures whether this node keeps up: the lag of its event loop, as the delay of a periodic call.

The loop does one thing at a time, so its lag delays every client, whatever the cause. The largest recent lag counts and
decays with each check: a level (`core.limits`) lasts a second or two after its cause, and one slow moment is soon over.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.core.limits import Shed, shed_level
from herenow.kit.clock import Clock

FADE = 0.6
"""Part of a lag that remains at the next check."""

WORST = 2.0
"""Seconds. Limits the effect of a process that was stopped for minutes."""

log = structlog.get_logger(__name__)


class Overload:
    def __init__(self, clock: Clock, every: float, on_level: Callable[[Shed], None]) -> None:
        self._clock = clock
        self._every = every
        self._on_level = on_level
        self._looked_at: float | None = None
        self.late = 0.0  # seconds
        self.level = Shed.NOTHING

    def look(self) -> None:
        now = self._clock.monotonic()
        late = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at - self._every)
        self._looked_at = now
        self.late = max(min(late, WORST), self.late * FADE)
        present, self.level = self.level, shed_level(self.level, self.late)
        if self.level is not present:
            log.warning("overload", given_up=self.level.name.lower(), late=round(self.late, 3))
            self._on_level(self.level)
