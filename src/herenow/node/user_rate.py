"""Limits per user, counted by this node: `UserRate` refuses, `UserBudgets` tells how long to wait.

A user is forgotten when the token bucket is full again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herenow.core.limits import USER_BUDGET, Rate, take_token
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


@dataclass(slots=True, eq=False)
class UserBudgets:
    clock: NodeClock
    _full_at: ExpiringLru[str, int] = field(default_factory=lambda: ExpiringLru(USERS))

    def __len__(self) -> int:
        return len(self._full_at)

    def debt(self, user: str) -> int:
        """Return the milliseconds until the debt of the user's budget is paid; 0: it has none."""
        now = self.clock.now()
        return USER_BUDGET.spend(self._full_at.get(user, now) or now, now, 0)[1]

    def spend(self, user: str, cost: int) -> int:
        """Take `cost` from the user's budget. Returns the milliseconds until its debt is paid; 0: it has none."""
        now = self.clock.now()
        full_at, wait = USER_BUDGET.spend(self._full_at.get(user, now) or now, now, cost)
        self._full_at.expire(now)
        self._full_at.put(user, full_at, full_at)
        return wait
