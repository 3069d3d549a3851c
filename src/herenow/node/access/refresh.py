"""How old is what we know, and when must it be asked again?

Facts of a source that may forget to tell us of a change are believed for a limited time. They are asked anew well before
that is over, at a moment that differs from one to the next, so that an application that is away for a while takes nobody
out of sight, and not everything is asked at once. What could not be asked anew in time is over. The age counts from the
question, not from the answer.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Generic, TypeVar

EARLIEST, LATEST = 0.5, 0.75
"""Parts of the age allowed, between which it is asked anew."""

AGAIN = 0.05
"""Part of the age allowed after which an attempt is repeated."""

Key = TypeVar("Key")


class RefreshSchedule(Generic[Key]):
    def __init__(self, limit: float | None, monotonic: Callable[[], float]) -> None:
        """`limit`: seconds; None: nothing grows old."""
        self._limit = limit
        self._monotonic = monotonic
        self._since: dict[Key, float] = {}
        self._turns: list[tuple[float, int, Key, float]] = []
        """When to look, a number that decides between equals, at what, and its `since` at that time."""
        self._count = 0

    def asked(self, key: Key, at: float) -> None:
        """Something about this was asked at that time; it is as old as the oldest of it."""
        if self._limit is not None and key not in self._since:
            self._since[key] = at
            self._push(at + self._limit * random.uniform(EARLIEST, LATEST), key, at)

    def asked_anew(self, key: Key, at: float) -> None:
        """Everything about this was asked at that time."""
        self._since.pop(key, None)
        self.asked(key, at)

    def turns(self) -> tuple[list[Key], list[Key]]:
        """Whose turn has come to be asked anew, and what is over."""
        old: list[Key] = []
        over: list[Key] = []
        now = self._monotonic()
        while self._limit is not None and self._turns and self._turns[0][0] <= now:
            _, _, key, since = heapq.heappop(self._turns)
            if self._since.get(key) != since:
                continue  # it was asked anew
            if now - since >= self._limit:
                del self._since[key]
                over.append(key)
            else:
                self._push(min(now + self._limit * AGAIN, since + self._limit), key, since)
                old.append(key)
        return old, over

    def _push(self, at: float, key: Key, since: float) -> None:
        self._count += 1
        heapq.heappush(self._turns, (at, self._count, key, since))
