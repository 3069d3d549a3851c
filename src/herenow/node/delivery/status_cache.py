"""Cache of encoded statuses for users that are read often and that no connection here watches.

An unchanged presence is the same object, so entries are found by identity. The caller has decided what the viewer may see.
"""

from __future__ import annotations

from herenow.core.model import Presence
from herenow.core.visibility import ViewScope, seen
from herenow.kit.lru import Lru
from herenow.wire.shapes import status_body

USERS = 50_000
SIGHTS = 4
"""Entries per user, the latest. Mostly there are one or two: for services and for contacts."""

_Kept = tuple[ViewScope, Presence, bool, int, bytes]


class StatusCache:
    def __init__(self) -> None:
        self._kept: Lru[str, tuple[_Kept, ...]] = Lru(USERS)

    def __len__(self) -> int:
        return len(self._kept)

    def body(self, user: str, sight: ViewScope, presence: Presence, today: int, *, stale: bool) -> bytes:
        """Return the encoded status of this presence as viewers with the scope `sight` see it, from the cache or
        encoded now. `today`: UTC day number. `stale`: flag it as possibly out of date."""
        kept = self._kept.get(user, ())
        for by, shown, said_stale, day, body in kept:
            if by is sight and shown is presence and said_stale is stale and day == today:
                return body
        # Equality last: it is slow, and equal scopes are mostly the same object.
        for by, shown, said_stale, day, body in kept:
            if shown is presence and said_stale is stale and day == today and by == sight:
                return body
        body = status_body(user, seen(presence, sight, today), stale=stale)
        others = [each for each in kept if each[0] != sight]
        self._kept.put(user, ((sight, presence, stale, today, body), *others[: SIGHTS - 1]))
        return body
