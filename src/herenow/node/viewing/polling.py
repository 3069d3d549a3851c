"""Who asks again and again instead of being told? Bulk reads of users without a live session, counted.

A bulk read costs a node as much as hundreds of beats, and somebody who polls every second gets it all for nothing: they
are not even here. Who has a live session, anywhere, is not limited, nor is a service. What is remembered are buckets
that are not full: a user is forgotten soon after theirs is.
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
        """Milliseconds until this user may read again; 0: now, and it is counted."""
        if self._reads is None or self._is_here(user):
            return 0
        wait = self._reads.take(user)
        return 0 if wait == 0 or await self._is_elsewhere(user) else wait

    def _is_here(self, user: str) -> bool:
        person = self._context.people.find(user)
        return person is not None and any(session.lost_at is None for session in person.held)

    async def _is_elsewhere(self, user: str) -> bool:
        """Asked only of those who would be refused: it may cost a read of the store."""
        [(presence, _)] = await self._records.read([user])
        return presence.live
