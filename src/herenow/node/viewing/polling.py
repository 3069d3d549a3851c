"""Who asks again and again instead of being told? Bulk reads of users without a live session, counted.

A bulk read costs a node as much as hundreds of beats, and somebody who polls every second gets it all for nothing: they
are not even here. Who has a live session, anywhere, is not limited, nor is a service. What is remembered are buckets
that are not full: a user is forgotten soon after theirs is.
"""

from __future__ import annotations

from collections import OrderedDict

from herenow.core.limits import take_token
from herenow.node.context import Context
from herenow.node.records import Records

POLLERS = 100_000
"""Users remembered at the most: about 15 MB. Beyond, the one who waited longest begins anew."""


class Polling:
    def __init__(self, context: Context, records: Records) -> None:
        self._people = context.people
        self._clock = context.clock
        self._rate = context.settings.polling
        self._records = records
        self._full_at: OrderedDict[str, int] = OrderedDict()
        """In the order of their last reads."""

    def __len__(self) -> int:
        return len(self._full_at)

    async def wait(self, user: str) -> int:
        """Milliseconds until this user may read again; 0: now, and it is counted."""
        if self._rate.every == 0 or self._is_here(user):
            return 0
        now = self._clock.now()
        full_at, wait = take_token(self._full_at.get(user), now, self._rate)
        if wait == 0:
            self._forget(now)
            self._full_at[user] = full_at
            self._full_at.move_to_end(user)
            return 0
        return 0 if await self._is_elsewhere(user) else wait

    def _is_here(self, user: str) -> bool:
        person = self._people.find(user)
        return person is not None and any(session.lost_at is None for session in person.held)

    async def _is_elsewhere(self, user: str) -> bool:
        """Asked only of those who would be refused: it may cost a read of the store."""
        [(presence, _)] = await self._records.read([user])
        return presence.live

    def _forget(self, now: int) -> None:
        """Whoever stands first has waited longest. One that is not full may hide others that are, but not for longer
        than a bucket takes to fill."""
        while self._full_at:
            user, full_at = next(iter(self._full_at.items()))
            if full_at > now and len(self._full_at) < POLLERS:
                return
            del self._full_at[user]
