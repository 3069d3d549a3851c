"""How many users are online, away, busy in the whole store?

Counted once at the start, then kept in step by the log: each entry says what others saw of the user before and after.
After a gap it is counted anew. Hidden users count as what they look like.
"""

from __future__ import annotations

from collections import Counter

from herenow.core.model import Status, public
from herenow.ports import Engine
from herenow.service.metrics import Metrics
from herenow.service.walk import pages


class Census:
    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._again = True
        self._meanwhile: Counter[int] | None = None

    def count(self, note: bytes) -> None:
        """A log entry's note: the status before and after."""
        before, after = note[0] >> 4, note[0] & 15
        if before != after:
            for counts in (self._metrics.users, self._meanwhile):
                if counts is not None:
                    counts[before] -= 1
                    counts[after] += 1

    def recount(self) -> None:
        """We missed something: count again at the next occasion."""
        self._again = True

    async def keep(self) -> None:
        """Count if need be. What changes while we walk may be off by one; the next change of that user corrects nothing,
        so a walk that saw changes is repeated until a quiet one is found, at most a few times."""
        for _ in range(5):
            if not self._again:
                return
            self._again = False
            self._meanwhile = Counter()
            counts = await self._walk()
            quiet = not self._meanwhile
            self._meanwhile = None
            self._metrics.users.clear()
            self._metrics.users.update(counts)
            if quiet:
                return
            self._again = True

    async def _walk(self) -> Counter[int]:
        counts: Counter[int] = Counter()
        async for part in pages(self._engine):
            counts.update(public(presence).status for _, presence in part)
        del counts[Status.OFFLINE]
        return counts
