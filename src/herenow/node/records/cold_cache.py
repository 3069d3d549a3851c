"""Users that are not in the store, as the ledger describes them: one query for many, kept for a minute.

Offline users leave the store once the ledger has saved them, so "not in the store" means: ask the ledger. Its answer can
only change by the user coming into the store, of which the log tells (`forget`).

Lookups for users that look offline but are in the store are padded (`padding`): the ledger is asked for them too and the
answer is thrown away. Otherwise response times would tell a hidden user from one who is gone.
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

KEEP = 60_000
"""Milliseconds for which an answer of the ledger is believed."""

USERS = 50_000

UNKNOWN_USER = Presence()


class ColdCache:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._cold: ExpiringLru[str, Presence] = ExpiringLru(USERS)
        self._asking: dict[str, object] = {}
        """User → the query under way, removed when something about the user changes meanwhile."""
        self._padded: ExpiringLru[str, bool] = ExpiringLru(USERS)
        """Users in the store that look offline, while no padding lookup is needed. Changes of the user do not shorten
        it: a hidden user may be active."""

    def forget(self, user: str) -> None:
        """Something happened to this user: the ledger's answer is out of date."""
        self._cold.pop(user)
        self._asking.pop(user, None)

    def forget_all(self) -> None:
        """Changes were missed, and it is not known whose."""
        self._cold.clear()
        self._asking.clear()

    def padding(self, users: Iterable[str]) -> list[str]:
        """Those of these users for which a padding lookup is due; they count as looked up from now on."""
        now = self._context.clock.now()
        due = [user for user in users if self._padded.get(user, now) is None]
        for user in due:
            self._padded.put(user, value=True, until=now + KEEP)
        return due

    async def get(
        self, users: Sequence[str], padding: Sequence[str] = (), *, sure: bool = False
    ) -> dict[str, Presence]:
        """What the ledger has of these users. While it is unreachable: those that are cached, or with `sure` `Unavailable`.
        `padding`: users that are queried too, for the response time alone."""
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
    """The presence of a user that is not in the store."""
    if remembered is None:
        return UNKNOWN_USER
    presence = Presence(last_seen=remembered.last_seen, idle_after=remembered.idle_after)
    choice = remembered.choice
    if choice is None:
        return presence
    return replace(
        presence, mode=choice.mode, mode_until=choice.mode_until, custom=choice.custom, chosen=choice.version
    )
