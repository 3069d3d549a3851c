"""Presence from the ledger, for users that are not in the store: one query for many users, cached for a minute. The values
can only change after the user is in the store again, and then the log has an entry (`forget`).

Padding defends against timing attacks: users that appear offline but are in the store are queried too, and the result is
discarded. Otherwise response times would distinguish a hidden user from an offline one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from herenow.core.model import Presence
from herenow.core.values import replace
from herenow.errors import Unavailable
from herenow.kit.deadline import read_within
from herenow.kit.lru import ExpiringLru
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.ports import Remembered

KEEP = 60_000  # milliseconds for which a ledger row is cached

USERS = 50_000

UNKNOWN_USER = Presence()


class ColdCache:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._cold: ExpiringLru[str, Presence] = ExpiringLru(USERS)
        self._asking: dict[str, object] = {}
        """User → the running query; removed by `forget`, so that its result is not cached."""
        self._padded: ExpiringLru[str, bool] = ExpiringLru(USERS)
        """Users that were queried as padding and need not be again yet. Not cleared by `forget`: a hidden user's activity
        must not cause queries."""

    def forget(self, user: str) -> None:
        """Remove the user from the cache. Call when the user's record changed; the result of a running query is not
        cached."""
        self._cold.pop(user)
        self._asking.pop(user, None)

    def forget_all(self) -> None:
        self._cold.clear()
        self._asking.clear()

    def padding(self, users: Iterable[str]) -> list[str]:
        """Return those of `users` that must be queried in the ledger now although the result is not needed, so that
        hidden users take as long as offline ones. A returned user is not returned again for `KEEP` ms."""
        now = self._context.clock.now()
        due = [user for user in users if self._padded.get(user, now) is None]
        for user in due:
            self._padded.put(user, value=True, until=now + KEEP)
        return due

    async def get(
        self, users: Sequence[str], padding: Sequence[str] = (), *, sure: bool = False
    ) -> dict[str, Presence]:
        """Return the presences of these users from the cache or the ledger. The users in `padding` are queried too, so
        that they take as long as the others, and are not returned. While the ledger is unreachable, only cached users
        are returned, or `Unavailable` is raised if `sure`."""
        now = self._context.clock.now()
        known: dict[str, Presence] = {}
        missing: list[str] = []
        for user in users:
            kept = self._cold.get(user, now)
            if kept is not None:
                known[user] = kept
            else:
                missing.append(user)
        if not missing and not padding:
            return known
        question = object()
        self._asking.update(dict.fromkeys(missing, question))
        try:
            rows = await read_within(self._context.ledger.remembered([*missing, *padding]), LEDGER_DEADLINE)
        except Unavailable:
            self._context.metrics.ledger_errors += 1
            if sure:
                raise
            return known
        finally:
            latest = [user for user in missing if self._asking.get(user) is question]
            for user in latest:
                self._asking.pop(user, None)
        known |= {user: from_ledger(rows.get(user)) for user in missing}
        for user in latest:
            self._cold.put(user, known[user], now + KEEP)
        return known


def from_ledger(remembered: Remembered | None) -> Presence:
    if remembered is None:
        return UNKNOWN_USER
    presence = Presence(last_seen=remembered.last_seen, idle_after=remembered.idle_after)
    choice = remembered.choice
    if choice is None:
        return presence
    return replace(
        presence,
        mode=choice.mode,
        mode_until=choice.mode_until,
        custom=choice.custom,
        sources=choice.sources,
        chosen=choice.version,
    )
