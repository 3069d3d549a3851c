"""An event loop without waiting: when nothing is ready, its time jumps to the next timer.

For code that runs wholly in this process. Real sockets and threads may be used, but time does not wait for them.
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
        """`timeout` is None when there is no timer at all: then only another thread can go on."""
        if timeout is None:
            return list(self._really_select(None))
        events: list[Any] = self._really_select(0)
        if not events and timeout > 0:
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
        return events
