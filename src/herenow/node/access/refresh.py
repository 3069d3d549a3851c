"""Ages of cached facts: when they must be queried again, and when they expire.

A source outside the ledger may fail to report a change, so its facts are valid for a limited time from the query. They are
queried again well before, at a random time: a short outage of the application hides no user, and the queries are spread.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Generic, TypeVar

EARLIEST, LATEST = 0.5, 0.75
"""Parts of the permitted age between which facts are queried again."""

AGAIN = 0.05
"""Part of the permitted age after which a query is repeated."""

Key = TypeVar("Key")


class RefreshSchedule(Generic[Key]):
    """Decides when cached relations must be queried again and when they expire. `limit`: permitted age in seconds; None:
    they do not expire."""

    def __init__(self, limit: float | None, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._since: dict[Key, float] = {}
        self._checks: list[tuple[float, int, Key, float]] = []
        """Heap of (monotonic time of the check, number that decides between equal times, key, `_since` of the key then)."""
        self._count = 0

    def asked(self, key: Key, at: float) -> None:
        """Record that some relations of `key` (a viewer, for example) were queried at `at` (monotonic seconds). The
        oldest give a key its age, so the time of an earlier query is kept."""
        if self._limit is not None and key not in self._since:
            self._since[key] = at
            self._push(at + self._limit * random.uniform(EARLIEST, LATEST), key, at)

    def asked_anew(self, key: Key, at: float) -> None:
        """Record that all relations of `key` were queried at `at` (monotonic seconds): the age of the key counts from
        there."""
        self._since.pop(key, None)
        self.asked(key, at)

    def turns(self) -> tuple[list[Key], list[Key]]:
        """Return two lists: the keys whose cached relations must be queried again now, and the keys whose relations
        have expired."""
        old: list[Key] = []
        over: list[Key] = []
        now = self._monotonic()
        while self._limit is not None and self._checks and self._checks[0][0] <= now:
            _, _, key, since = heapq.heappop(self._checks)
            if self._since.get(key) != since:
                continue  # it was queried again
            if now - since >= self._limit:
                del self._since[key]
                over.append(key)
            else:
                self._push(min(now + self._limit * AGAIN, since + self._limit), key, since)
                old.append(key)
        return old, over

    def _push(self, at: float, key: Key, since: float) -> None:
        self._count += 1
        heapq.heappush(self._checks, (at, self._count, key, since))
