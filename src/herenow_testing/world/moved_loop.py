"""An event loop with simulated time: when nothing is ready, its time jumps to the next timer.

Real sockets and threads can be used, but the simulated time does not wait for them.
"""

from __future__ import annotations

import asyncio
from typing import Any


class MovedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._really_select = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._now

    def _select(self, timeout: float | None) -> list[Any]:
        """Select the events that are ready; if there are none, jump to the next timer instead of waiting. `timeout` is
        None if there is no timer: then wait for an event in real time."""
        if timeout is None:
            return list(self._really_select(None))
        events: list[Any] = self._really_select(0)
        if not events and timeout > 0:
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
        return events
