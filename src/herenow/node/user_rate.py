"""`UserRate`: a rate limit per user, counted by this node. A user is forgotten when the token bucket is full again."""

from __future__ import annotations

from herenow.core.limits import Rate, take_token
from herenow.kit.clock import NodeClock
from herenow.kit.lru import ExpiringLru

USERS = 100_000
"""Users remembered at the most: about 15 MB. Beyond, the user with the oldest request starts with a full bucket again."""


class UserRate:
    def __init__(self, rate: Rate, clock: NodeClock) -> None:
        self._rate = rate
        self._clock = clock
        self._full_at: ExpiringLru[str, int] = ExpiringLru(USERS)
        """When the bucket of a user is full again; in the order of the last requests."""

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, user: str) -> int:
        """Count a request of this user against the rate limit. Returns 0 if it is permitted, otherwise the milliseconds
        to wait; a refused request is not counted."""
        now = self._clock.now()
        full_at, wait = take_token(self._full_at.get(user, now), now, self._rate)
        if wait == 0:
            self._full_at.expire(now)
            self._full_at.put(user, full_at, full_at)
        return wait
