"""A user's choices about being seen: visibility, last seen, public profile, blocks.

The ledger is the authority: nothing can be changed while it is unreachable. The last seen that hiding freezes is computed
here, from the record and the facts of that moment, and written in the same transaction.
"""

from __future__ import annotations

from herenow.core.visibility import (
    Preferences,
    PreferencesEdit,
    last_seen_if_gone,
    last_seen_when_blocked,
    outlasts_a_block,
)
from herenow.kit.deadline import read_within, write_within
from herenow.node.access import RelationCache
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.records import Records
from herenow.node.viewing.relation_events import RelationEvents
from herenow.ports import BlockRow, LedgerChange


class Privacy:
    def __init__(
        self, context: Context, records: Records, access: RelationCache, relation_events: RelationEvents
    ) -> None:
        self._clock = context.clock
        self._ledger = context.ledger
        self._records = records
        self._access = access
        self._relation_events = relation_events

    async def preferences(self, user: str) -> Preferences:
        found = await read_within(self._ledger.preferences([user]), LEDGER_DEADLINE)
        return found.get(user, Preferences())

    async def change(self, user: str, edit: PreferencesEdit) -> Preferences:
        """Views of this node are up to date when it returns."""
        [(presence, _)] = await self._records.read([user])
        now = self._clock.now()
        last_seen = last_seen_if_gone(presence, now)
        after = await write_within(self._ledger.set_preferences(user, edit, now, last_seen), LEDGER_DEADLINE)
        await self._relation_events.spread([LedgerChange("preferences", user, "")])
        return after

    async def blocked(self, user: str) -> list[str]:
        return await read_within(self._ledger.blocked(user), LEDGER_DEADLINE)

    async def block(self, user: str, other: str) -> None:
        """Hide both users from each other. It makes no difference whether the other exists."""
        changed = LedgerChange("relation", user, other)
        # Facts are read again, with the writes of other nodes in the last second.
        for change in (changed, LedgerChange("preferences", user, ""), LedgerChange("preferences", other, "")):
            self._access.forget(change)
        of_user = await self._access.facts(viewer=other, target=user)
        of_other = await self._access.facts(viewer=user, target=other)
        (mine, _), (theirs, _) = await self._records.read([user, other])
        now = self._clock.now()
        row = BlockRow(
            blocker=user,
            blocked=other,
            at=now,
            blocker_seen=last_seen_when_blocked(mine, of_user, now),
            blocked_seen=last_seen_when_blocked(theirs, of_other, now),
        )
        await write_within(self._ledger.block(row), LEDGER_DEADLINE)
        await self._relation_events.spread([changed])

    async def unblock(self, user: str, other: str) -> None:
        known = await read_within(self._ledger.preferences([user, other]), LEDGER_DEADLINE)
        remember = any(map(outlasts_a_block, known.values()))
        lifted_at = self._clock.now() if remember else None
        await write_within(self._ledger.unblock(user, other, lifted_at), LEDGER_DEADLINE)
        await self._relation_events.spread([LedgerChange("relation", user, other)])
