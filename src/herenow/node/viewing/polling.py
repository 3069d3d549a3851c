"""Rate limit for bulk reads of users without a live session.

A bulk read costs as much as hundreds of heartbeats, and a client that polls instead of connecting is not even online. Users
with a live session on any node, and services, are not limited. Only buckets that are not full are kept.
"""

from __future__ import annotations

from herenow.core.limits import Rate
from herenow.node.context import Context
from herenow.node.records import Records
from herenow.node.user_rate import UserRate
from herenow.settings import milliseconds


class Polling:
    def __init__(self, context: Context, records: Records) -> None:
        self._context = context
        rate = Rate(milliseconds(context.settings.poll_every), context.settings.poll_burst)
        self._reads = UserRate(rate, context.clock) if rate.every else None
        self._records = records

    def __len__(self) -> int:
        return 0 if self._reads is None else len(self._reads)

    async def wait(self, user: str) -> int:
        """Count a bulk read of this user against the rate limit. Returns 0 if it is permitted, otherwise the
        milliseconds until the next one is. Users with a live session are not limited."""
        if self._reads is None or self._is_here(user):
            return 0
        wait = self._reads.take(user)
        return 0 if wait == 0 or await self._is_elsewhere(user) else wait

    def _is_here(self, user: str) -> bool:
        person = self._context.people.find(user)
        return person is not None and any(session.lost_at is None for session in person.held)

    async def _is_elsewhere(self, user: str) -> bool:
        """True if the user has a live session on any node. Check this only before a refusal: it may read the store."""
        [(presence, _)] = await self._records.read([user])
        return presence.live
