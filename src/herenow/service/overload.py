"""Does this node keep up? Measured by how late its own event loop comes back to a task that only sleeps.

The loop does one thing at a time, so its lateness is what every client feels, whatever the cause. It is taken as the
worst of late, fading by a fifth with each look, so that a level holds for a second or two after its cause. What is given
up at which lateness stands in `core.shedding`.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.core.shedding import Shed, level
from herenow.service.clock import Clock
from herenow.service.metrics import Metrics

LOOK = 0.1
"""Seconds between two looks."""

FADE = 0.8
WORST = 2.0
"""Seconds: a process that was stopped for minutes is not late for minutes."""

log = structlog.get_logger(__name__)


class Overload:
    def __init__(self, clock: Clock, metrics: Metrics, on_level: Callable[[Shed], None]) -> None:
        self._clock = clock
        self._metrics = metrics
        self._on_level = on_level
        self._looked_at: float | None = None
        self._late = 0.0
        self.level = Shed.NOTHING

    async def look(self) -> None:
        """Called every `LOOK` seconds, if the loop can."""
        now = self._clock.monotonic()
        late = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at - LOOK)
        self._looked_at = now
        self._late = max(min(late, WORST), self._late * FADE)
        self._metrics.loop_late = self._late
        present, self.level = self.level, level(self.level, self._late)
        if self.level is not present:
            log.warning("overload", given_up=self.level.name.lower(), late=round(self._late, 3))
            self._on_level(self.level)
