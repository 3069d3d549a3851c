"""Announces relations, blocks and preferences that were written here: at once to this node, by a message to other nodes.

The message only saves time: the ledger's change table has the same within a second. It names the pairs that changed, never
the new values, so a false message makes a node ask again and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from herenow.errors import Unavailable, UnknownOutcome
from herenow.node.access import WHOLE, RelationCache
from herenow.node.cluster import NodeMessages
from herenow.node.context import Context
from herenow.node.viewing.reevaluation import Reevaluation
from herenow.node.viewing.typing import TypingRooms
from herenow.ports import LedgerChange

MOST = 200
"""Changes in one message. More at once are an import, for which the change table is fast enough."""


class ChangedMessage(msgspec.Struct, frozen=True, tag="changed"):
    origin: str
    changes: list[tuple[str, str, str]]


class RelationEvents:
    def __init__(
        self,
        context: Context,
        messages: NodeMessages,
        access: RelationCache,
        reevaluation: Reevaluation,
        typing: TypingRooms,
    ) -> None:
        self._tasks = context.tasks
        self._messages = messages
        self._access = access
        self._reevaluation = reevaluation
        self._typing = typing
        messages.handle(ChangedMessage, self.receive)

    async def spread(self, changes: Sequence[LedgerChange]) -> None:
        """Forget the cached relations and preferences that these changes concern, inform the other nodes, and update
        the views of this node. Returns when that is done."""
        for change in changes:
            self._access.forget(change)
        await self._send(changes)
        for change in changes:
            self._typing.on_ledger_change(change)
            await self._reevaluation.apply_change(change)

    async def spread_block(self, user: str, other: str) -> None:
        """Do the same as `spread` for a block of `other` that `user` placed or lifted, but wait for the views of `user`
        only. The time of the answer must not depend on whether the other is here and watches."""
        change = LedgerChange("relation", user, other)
        self._access.forget(change)
        await self._send([change])
        self._typing.on_ledger_change(change)
        self._tasks.spawn(self._reevaluation.reevaluate(other, [user]), "block")
        await self._reevaluation.reevaluate(user, [other])

    def spread_later(self, change: LedgerChange) -> None:
        """Do the same as `spread` in the background, after a change that may not have been written."""
        self._tasks.spawn(self.spread([change]), change.kind)

    async def spread_soon(self, changes: Sequence[LedgerChange]) -> None:
        """Do the same as `spread` for changes that the application reports, but return without waiting for the views.
        Updating them may send a request to the application, which waits for this call."""
        for change in changes:
            self._access.changed(change)
            if change.kind in WHOLE:
                await asyncio.sleep(0)  # `changed` has searched all cached facts
        await self._send(changes)

    async def _send(self, changes: Sequence[LedgerChange]) -> None:
        if 0 < len(changes) <= MOST:
            message = ChangedMessage(self._messages.origin, [(c.kind, c.a, c.b) for c in changes])
            with suppress(Unavailable, UnknownOutcome):
                await self._messages.send(message)

    def receive(self, message: ChangedMessage) -> None:
        if message.origin != self._messages.origin:
            for change in message.changes:
                self._access.changed(LedgerChange(*change))
