"""Writes follows, contacts and memberships to the ledger. Views follow at once here, within two seconds on other nodes."""

from __future__ import annotations

from collections.abc import Sequence

from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.viewing.relation_events import RelationEvents
from herenow.ports import LedgerChange, RelationRow


class Graph:
    def __init__(self, context: Context, relation_events: RelationEvents) -> None:
        self._clock = context.clock
        self._ledger = context.ledger
        self._relation_events = relation_events

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        """Write these follows, contacts and memberships to the ledger, all or none. Returns how many changed; views of
        this node are up to date by then."""
        changed = await write_within(self._ledger.apply(rows), LEDGER_DEADLINE)
        kinds = {"room": "member"}
        await self._relation_events.spread(
            [LedgerChange(kinds.get(row.kind, "relation"), row.a, row.b) for row in rows]
        )
        return changed

    async def changed_elsewhere(self, changes: Sequence[LedgerChange]) -> None:
        """Apply changes of relations that the application reports: this node applies them now, other nodes read them in
        the ledger's change table. It is idempotent: call again if the ledger does not answer."""
        await self._relation_events.spread_soon(changes)
        await read_within(self._ledger.note_changes(changes), LEDGER_DEADLINE)

    async def follows(self, a: str, b: str) -> bool:
        return await read_within(self._ledger.follows(a, b), LEDGER_DEADLINE)

    async def contact(self, a: str, b: str) -> tuple[bool, int | None]:
        return await read_within(self._ledger.contact(a, b, self._clock.now()), LEDGER_DEADLINE)

    async def is_member(self, room: str, user: str) -> bool:
        return await read_within(self._ledger.is_member(room, user), LEDGER_DEADLINE)
