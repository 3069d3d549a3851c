"""Something about who may see whom was written here: everybody who looks must see it, here before the writer is answered,
elsewhere as soon as a message gets there.

The message is a courtesy: the ledger's change table says the same within a second, and nothing depends on its arrival
(see `relations`). It says *that* something changed, never what, so a false one makes a node ask again and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_urlsafe

import msgspec

from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import write_within
from herenow.node.access.relation_cache import WHOLE, Acquaintances
from herenow.node.viewing.subscriptions import Subscriptions
from herenow.node.viewing.typing import TypingRooms
from herenow.ports import Engine, LedgerChange

MOST = 200
"""Changes in one message. More at once are an import, which the change table tells soon enough."""


class ChangedMessage(msgspec.Struct, frozen=True, tag="changed"):
    """Between nodes."""

    origin: str
    changes: list[tuple[str, str, str]]
    """(kind, a, b) of each."""


class News:
    def __init__(
        self, engine: Engine, relations: Acquaintances, subscriptions: Subscriptions, typing: TypingRooms
    ) -> None:
        self._engine = engine
        self._relations = relations
        self._subscriptions = subscriptions
        self._typing = typing
        self._origin = token_urlsafe(6)

    async def spread(self, changes: Sequence[LedgerChange]) -> None:
        """Returns when everybody here sees what they may see now."""
        for change in changes:
            self._relations.forget(change)
        await self._tell(changes)
        for change in changes:
            self._typing.changed(change)
            await self._subscriptions.follow(change)

    async def spread_soon(self, changes: Sequence[LedgerChange]) -> None:
        """Of what is kept elsewhere: whoever tells us of it does not wait until all have looked, for that may mean to ask
        the very one who is waiting."""
        for change in changes:
            self._relations.changed(change)
            if change.kind in WHOLE:
                await asyncio.sleep(0)  # it looked through all that we know
        await self._tell(changes)

    async def _tell(self, changes: Sequence[LedgerChange]) -> None:
        if 0 < len(changes) <= MOST:
            message = ChangedMessage(self._origin, [(c.kind, c.a, c.b) for c in changes])
            with suppress(Unavailable, UnknownOutcome):
                await write_within(self._engine.send(msgspec.json.encode(message)))

    def receive(self, message: ChangedMessage) -> None:
        """From another node."""
        if message.origin != self._origin:
            for change in message.changes:
                self._relations.changed(LedgerChange(*change))
