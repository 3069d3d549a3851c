"""The open policy: every user may see every other user. For a team, a game, a product without a social graph.

The list of contacts is empty, because it would contain all users. Members of rooms are read from the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.ports import Relation, Relations


class OpenRelations:
    def __init__(self, rooms: Relations) -> None:
        self._rooms = rooms

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]:
        return [_RELATED] * len(targets)

    async def contacts(self, user: str, now: int) -> list[str]:
        return []

    async def is_member(self, room: str, user: str) -> bool:
        return await self._rooms.is_member(room, user)


_RELATED = Relation(mutual_follow=True)
