"""Something about who may see whom was written here: everybody who looks must see it, here before the writer is answered,
elsewhere as soon as a message gets there.

The message is a courtesy: the ledger's change table says the same within a second, and nothing depends on its arrival
(see `relations`). It says *that* something changed, never what, so a false one makes a node ask again and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from herenow.errors import Unavailable, UnknownOutcome
from herenow.node.access import WHOLE, RelationCache
from herenow.node.cluster import NodeMessages
from herenow.node.viewing.reevaluation import Reevaluation
from herenow.node.viewing.typing import TypingRooms
from herenow.ports import LedgerChange

MOST = 200
"""Changes in one message. More at once are an import, which the change table tells soon enough."""


class ChangedMessage(msgspec.Struct, frozen=True, tag="changed"):
    """Between nodes."""

    origin: str
    changes: list[tuple[str, str, str]]
    """(kind, a, b) of each."""


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
        """Returns when everybody here sees what they may see now."""
        for change in changes:
            self._access.forget(change)
        await self._tell(changes)
        for change in changes:
            self._typing.on_ledger_change(change)
            await self._reevaluation.apply_change(change)

    async def spread_soon(self, changes: Sequence[LedgerChange]) -> None:
        """Of what is kept elsewhere: whoever tells us of it does not wait until all have looked, for that may mean to ask
        the very one who is waiting."""
        for change in changes:
            self._access.changed(change)
            if change.kind in WHOLE:
                await asyncio.sleep(0)  # it looked through all that we know
        await self._tell(changes)

    async def _tell(self, changes: Sequence[LedgerChange]) -> None:
        if 0 < len(changes) <= MOST:
            message = ChangedMessage(self._messages.origin, [(c.kind, c.a, c.b) for c in changes])
            with suppress(Unavailable, UnknownOutcome):
                await self._messages.send(message)

    def receive(self, message: ChangedMessage) -> None:
        """From another node."""
        if message.origin != self._messages.origin:
            for change in message.changes:
                self._access.changed(LedgerChange(*change))
