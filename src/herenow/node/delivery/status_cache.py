"""Encoded statuses of those who are asked for again and again and whom nobody here watches.

Answers: how does this presence look by this sight today, in bytes? A presence that has not changed is the same object, so
what was encoded of it is found by looking, not by comparing. Who may see what is decided before, and the bytes are those of
`wire.shapes`; a value that is kept and one that is made anew cannot be told apart.
"""

from __future__ import annotations

from herenow.core.model import Presence
from herenow.core.visibility import ViewScope, seen
from herenow.kit.lru import Lru
from herenow.wire.shapes import status_body

USERS = 50_000
SIGHTS = 4
"""Of one user, the latest: mostly there are one or two, a service's and that of contacts."""

_Kept = tuple[ViewScope, Presence, bool, int, bytes]


class StatusCache:
    def __init__(self) -> None:
        self._kept: Lru[str, tuple[_Kept, ...]] = Lru(USERS)

    def __len__(self) -> int:
        return len(self._kept)

    def body(self, user: str, sight: ViewScope, presence: Presence, today: int, *, stale: bool) -> bytes:
        """`today`: see `visibility.day_of`. `stale`: nobody knows whether it is still so."""
        kept = self._kept.get(user, ())
        for by, shown, said_stale, day, body in kept:
            if by is sight and shown is presence and said_stale is stale and day == today:
                return body
        # Equal sights are mostly the same one, and slow to compare.
        for by, shown, said_stale, day, body in kept:
            if shown is presence and said_stale is stale and day == today and by == sight:
                return body
        body = status_body(user, seen(presence, sight, today), stale=stale)
        others = [each for each in kept if each[0] != sight]
        self._kept.put(user, ((sight, presence, stale, today, body), *others[: SIGHTS - 1]))
        return body
