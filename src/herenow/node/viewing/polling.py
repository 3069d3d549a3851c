"""Rate limit for bulk reads of users without a live session.

A bulk read costs as much as hundreds of heartbeats, and a client that polls instead of connecting is not even online. Users
with a live session on any node, and services, are not limited. Only buckets that are not full are kept.
"""

from __future__ import annotations

from herenow.core.limits import Rate, take_token
from herenow.kit.lru import ExpiringLru
from herenow.node.context import Context
from herenow.node.records import Records
from herenow.settings import milliseconds

POLLERS = 100_000
"""Buckets kept at most: about 15 MB. Beyond that the oldest is dropped, so its user has a full one."""


class Polling:
    def __init__(self, context: Context, records: Records) -> None:
        self._context = context
        self._rate = Rate(milliseconds(context.settings.poll_every), context.settings.poll_burst)
        self._records = records
        self._full_at: ExpiringLru[str, int] = ExpiringLru(POLLERS)
        """User → time (ms) at which the bucket is full again, in order of the last reads."""

    def __len__(self) -> int:
        return len(self._full_at)

    async def wait(self, user: str) -> int:
        """Milliseconds until this user may read again; 0: now, and the read is counted."""
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
        """Check this only before a refusal: it may read the store."""
        [(presence, _)] = await self._records.read([user])
        return presence.live
