"""When thousands of connections close at once, their ends are processed a few per turn of the event loop.

An end takes a tenth of a millisecond or more to note, to decide and to write. Done as they come, all that were read together
are done in one turn of the loop, and whoever goes meanwhile is read, and taken for gone, only after that. Grace counts from
there, so they would be announced as much too late. In portions, the loop reads between two of them who else has gone.

A few ends are done at once. This module does not know what an end consists of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

A_TURN = 25
"""Ends in a turn of the loop: about two milliseconds of work, while a turn reads up to a thousand who go."""

log = structlog.get_logger(__name__)


class CloseQueue:
    """Runs callbacks in order, at most `A_TURN` per turn of the event loop."""

    __slots__ = ("_done", "_waiting")

    def __init__(self) -> None:
        self._done = 0
        """In this turn."""
        self._waiting: deque[Callable[[], object]] = deque()

    def take(self, depart: Callable[[], object]) -> None:
        """Called now, or at its turn: in the order in which they came."""
        if self._waiting or self._done >= A_TURN:
            self._waiting.append(depart)
            return
        if not self._done:
            asyncio.get_running_loop().call_soon(self._next)
        self._done += 1
        depart()

    def finish(self) -> None:
        """All that wait, now: nobody is there any more to wait for."""
        while self._waiting:
            self._depart()

    def _next(self) -> None:
        self._done = 0
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
            while self._waiting and self._done < A_TURN:
                self._done += 1
                self._depart()

    def _depart(self) -> None:
        try:
            self._waiting.popleft()()
        except Exception:
            log.exception("departure.failed")  # that of one is no reason to keep the others
