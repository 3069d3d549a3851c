"""Announces relations, blocks and preferences that were written here: at once to this node, by a message to other nodes.

The message only saves time: the ledger's change table has the same within a second. It names the pairs that changed, never
the new values, so a false message makes a node ask again and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec

from herenow.core.visibility import Preferences
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.node.access import WHOLE, RelationCache
from herenow.node.cluster import NodeMessages
from herenow.node.viewing.reevaluation import Reevaluation
from herenow.node.viewing.typing import TypingRooms
from herenow.ports import BlockRow, LedgerChange

MOST = 200
"""Changes in one message. More at once are an import, for which the change table is fast enough."""


class ChangedMessage(msgspec.Struct, frozen=True, tag="changed"):
    origin: str
    changes: list[tuple[str, str, str]]


class RelationEvents:
    def __init__(
        self, messages: NodeMessages, access: RelationCache, reevaluation: Reevaluation, typing: TypingRooms
    ) -> None:
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
        self._reevaluation.reevaluate_soon(other, [user])
        await self._reevaluation.reevaluate(user, [other])

    def hidden_by_block(self, row: BlockRow) -> AbstractContextManager[None]:
        """Hide two users from each other on this node, before the ledger has the block."""
        change = LedgerChange("relation", row.blocker, row.blocked)
        return self._hidden_first(self._access.hiding_by_block(row), change)

    def hidden_by_preferences(
        self, user: str, hide: Callable[[Preferences], Preferences]
    ) -> AbstractContextManager[None]:
        """Hide a user on this node by changed preferences, before the ledger has them."""
        return self._hidden_first(self._access.hiding_by_preferences(user, hide), LedgerChange("preferences", user, ""))

    @contextmanager
    def _hidden_first(self, hiding: AbstractContextManager[None], change: LedgerChange) -> Iterator[None]:
        """Apply the cached facts of `hiding` to the views of this node, before the ledger has them. If the write fails,
        query the facts again. While the ledger does not answer, hide nothing: the write will fail."""
        if self._access.trouble is not None:
            yield
            return
        with hiding:
            self._reevaluation.apply_cached(change)
            try:
                yield
            except HerenowError:
                self._access.changed(change)
                raise

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
