"""Who asks again and again instead of being told? Bulk reads of users without a live session, counted.

A bulk read costs a node as much as hundreds of beats, and somebody who polls every second gets it all for nothing: they
are not even here. Who has a live session, anywhere, is not limited, nor is a service. What is remembered are buckets
that are not full: a user is forgotten soon after theirs is.
"""

from __future__ import annotations

from herenow.core.limits import Rate, take_token
from herenow.kit.lru import ExpiringLru
from herenow.node.context import Context
from herenow.node.records import Records
from herenow.settings import milliseconds

POLLERS = 100_000
"""Users remembered at the most: about 15 MB. Beyond, the one who waited longest begins anew."""


class Polling:
    def __init__(self, context: Context, records: Records) -> None:
        self._context = context
        self._rate = Rate(milliseconds(context.settings.poll_every), context.settings.poll_burst)
        self._records = records
        self._full_at: ExpiringLru[str, int] = ExpiringLru(POLLERS)
        """When the bucket of a user is full again; in the order of their last reads, until then."""

    def __len__(self) -> int:
        return len(self._full_at)

    async def wait(self, user: str) -> int:
        """Milliseconds until this user may read again; 0: now, and it is counted."""
        if self._rate.every == 0 or self._is_here(user):
            return 0
        now = self._context.clock.now()
        full_at, wait = take_token(self._full_at.get(user, now), now, self._rate)
        if wait == 0:
            self._full_at.expire(now)
            self._full_at.put(user, full_at, full_at)
            return 0
        return 0 if await self._is_elsewhere(user) else wait

    def _is_here(self, user: str) -> bool:
        person = self._context.people.find(user)
        return person is not None and any(session.lost_at is None for session in person.held)

    async def _is_elsewhere(self, user: str) -> bool:
        """Asked only of those who would be refused: it may cost a read of the store."""
        [(presence, _)] = await self._records.read([user])
        return presence.live
