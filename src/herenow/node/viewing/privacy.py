"""A user's choices about being seen: visibility, last seen, public profile, blocks.

The ledger is the authority: nothing can be changed while it is unreachable. The last seen of a user who signs out now is
computed here from the record. Whether a user is hidden already, so that an earlier last seen stays frozen, is read by the
ledger in the transaction that writes: facts that were read before it may change meanwhile, and another user could prevent a
block by changing them again and again.
"""

from __future__ import annotations

from herenow.core.limits import BLOCKING, MAX_BLOCKS
from herenow.core.visibility import Preferences, PreferencesEdit, last_seen_if_gone
from herenow.errors import ProtocolError
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.records import Records
from herenow.node.user_rate import UserRate
from herenow.node.viewing.relation_events import RelationEvents
from herenow.ports import BlockRow, LedgerChange, TooManyBlocks


class Privacy:
    def __init__(self, context: Context, records: Records, relation_events: RelationEvents) -> None:
        self._clock = context.clock
        self._ledger = context.ledger
        self._records = records
        self._relation_events = relation_events
        self._rate = UserRate(BLOCKING, context.clock)

    async def preferences(self, user: str) -> Preferences:
        found = await read_within(self._ledger.preferences([user]), LEDGER_DEADLINE)
        return found.get(user, Preferences())

    async def change(self, user: str, edit: PreferencesEdit) -> Preferences:
        """Change the user's preferences and return the new ones. Views of this node are up to date by then."""
        [(presence, _)] = await self._records.read([user])
        now = self._clock.now()
        last_seen = last_seen_if_gone(presence, now)
        after = await write_within(self._ledger.set_preferences(user, edit, now, last_seen), LEDGER_DEADLINE)
        await self._relation_events.spread([LedgerChange("preferences", user, "")])
        return after

    async def blocked(self, user: str) -> list[str]:
        return await read_within(self._ledger.blocked(user), LEDGER_DEADLINE)

    def wait_before_block(self, user: str) -> int:
        """Count a block or unblock by this user against the rate limit. Returns 0 if it is permitted, otherwise the
        milliseconds until the next one is."""
        return self._rate.take(user)

    async def block(self, user: str, other: str) -> None:
        """Let `user` block `other`, which hides both from each other. It makes no difference whether the other exists.
        Raises `ProtocolError` (too_many_blocks)."""
        (mine, _), (theirs, _) = await self._records.read([user, other])
        now = self._clock.now()
        row = BlockRow(
            blocker=user,
            blocked=other,
            at=now,
            blocker_seen=last_seen_if_gone(mine, now),
            blocked_seen=last_seen_if_gone(theirs, now),
        )
        try:
            await write_within(self._ledger.block(row, MAX_BLOCKS), LEDGER_DEADLINE)
        except TooManyBlocks:
            sentence = f"A user may block {MAX_BLOCKS} users. Blocks that ended while one of the two hides count too."
            raise ProtocolError("too_many_blocks", sentence) from None
        await self._relation_events.spread([LedgerChange("relation", user, other)])

    async def unblock(self, user: str, other: str) -> None:
        await write_within(self._ledger.unblock(user, other, self._clock.now()), LEDGER_DEADLINE)
        await self._relation_events.spread([LedgerChange("relation", user, other)])


_UNDECIDED = Preferences()
