"""Typing notices: delivered when they are received, stored nowhere.

A client drops a notice after `expires_in`, so a typist whose tab is killed disappears in time, and no timer runs here.
Repetitions faster than `typing_min` are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from herenow.core.visibility import ViewScope, may_hear_typing
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.kit.idset import holds
from herenow.node.access import RelationCache
from herenow.node.cluster import NodeMessages
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Connection, Outbox
from herenow.node.records import Records
from herenow.ports import LedgerChange
from herenow.wire.shapes import typing_frame

MAX_ROOMS = 100
"""Rooms that one connection may have open."""

GATES = 100_000


class TypingMessage(msgspec.Struct, frozen=True, tag="typing"):
    origin: str
    """The node that received the notice from a client, and has delivered it to its own connections."""
    user: str
    to: str | None
    room: str | None
    typing: bool


class TypingRooms:
    def __init__(
        self, context: Context, delivery: Delivery, records: Records, messages: NodeMessages, access: RelationCache
    ) -> None:
        self._context = context
        self._delivery = delivery
        self._records = records
        self._messages = messages
        self._access = access
        self._rooms: dict[str, dict[Outbox, None]] = {}
        self._sent_at: dict[tuple[str, str | None, str | None], float] = {}
        """(user, to, room) → monotonic time of the last notice; absent: none, or its end was sent."""
        messages.handle(TypingMessage, self.receive)

    # Rooms

    async def open_room(self, connection: Connection, room: str) -> None:
        if not await self._access.is_member(room, connection.user):
            raise _not_a_member(room)
        if room not in connection.rooms and len(connection.rooms) >= MAX_ROOMS:
            raise ProtocolError("too_many_rooms", f"A connection may have {MAX_ROOMS} rooms open.")
        if not connection.outbox.closed:
            connection.rooms |= {room}
            self._rooms.setdefault(room, {})[connection.outbox] = None

    def close_room(self, connection: Connection, room: str) -> None:
        connection.rooms -= {room}
        self._leave(connection.outbox, room)

    def on_connection_closed(self, connection: Connection) -> None:
        for room in connection.rooms:
            self.close_room(connection, room)

    def on_ledger_change(self, change: LedgerChange) -> None:
        for room, user in self._to_check(change):
            self._context.tasks.spawn(self._check_member(room, user), "member")

    def _to_check(self, change: LedgerChange) -> set[tuple[str, str]]:
        match change.kind:
            case "member" if change.a in self._rooms:
                return {(change.a, change.b)}
            case "members":
                return {(change.a, outbox.user) for outbox in self._rooms.get(change.a, ())}
            case "relations":
                user = change.a
                return {(room, user) for room, outboxes in self._rooms.items() if any(o.user == user for o in outboxes)}
        return set()

    async def _check_member(self, room: str, user: str) -> None:
        """Close the room for this user's connections unless the user is a member. Without an answer it stays open:
        membership is checked again for each notice."""
        try:
            if await self._access.is_member(room, user):
                return
        except Unavailable:
            return
        for outbox in [o for o in self._rooms.get(room, ()) if o.user == user]:
            self._leave(outbox, room)

    def _leave(self, outbox: Outbox, room: str) -> None:
        outboxes = self._rooms.get(room)
        if outboxes is not None:
            outboxes.pop(outbox, None)
            if not outboxes:
                del self._rooms[room]

    # Typing

    async def typing(self, connection: Connection, to: str | None, room: str | None, *, typing: bool) -> None:
        """Send a notice that the connection's user began to type, or stopped (`typing` False), to the user `to` or to a
        room. Raises `ProtocolError` if the user may not write there."""
        user = connection.user
        if room is not None and not await self._access.is_member(room, user):
            raise _not_a_member(room)
        if to is not None and to != user and not await self._may_address(user, to):
            return
        if not self._is_new((user, to, room), typing=typing):
            return
        self._context.metrics.typing += 1
        message = TypingMessage(self._messages.origin, user, to, room, typing)
        # Not awaited: its duration would reveal which viewers are present.
        self._context.tasks.spawn(self.pass_on(message), "typing")
        with suppress(Unavailable, UnknownOutcome):  # best effort: viewers on other nodes miss one notice
            await self._messages.send(message)

    async def _may_address(self, user: str, to: str) -> bool:
        """True if the user may send typing notices to `to`; False if that is unknown. Raises `ProtocolError` for a
        stranger, but not for a target that hides: that must not be revealed."""
        await self._access.relate(user, [to])
        verdict = self._access.verdict(user, to)
        if verdict is not None and verdict.scope == ViewScope.NONE:
            raise ProtocolError("not_mutual_followers", f"{to} and you neither follow each other nor are in contact.")
        return verdict is not None

    def receive(self, message: TypingMessage) -> None:
        if message.origin != self._messages.origin:
            self._context.tasks.spawn(self.pass_on(message), "typing")

    def _is_new(self, key: tuple[str, str | None, str | None], *, typing: bool) -> bool:
        now = self._context.clock.monotonic()
        sent_at = self._sent_at.get(key)
        if not typing:
            return self._sent_at.pop(key, None) is not None
        if sent_at is not None and now - sent_at < self._context.settings.typing_min:
            return False
        self._sent_at[key] = now
        if len(self._sent_at) > GATES:
            self._sent_at = {k: at for k, at in self._sent_at.items() if now - at < self._context.settings.typing_for}
        return True

    async def pass_on(self, message: TypingMessage) -> None:
        """Deliver a typing notice to the connections of this node that may get it. Notices of hidden users are dropped."""
        outboxes = self._recipients(message)
        if not outboxes:
            return
        if self._delivery.gives_up_typing:
            self._context.metrics.given_up["typing"] += 1
            return
        viewers = sorted({outbox.user for outbox in outboxes})
        if message.room is not None:
            viewers = await self._still_members(message.room, viewers)
        sights = await self._access.view_scopes_of(message.user, viewers)
        [(presence, _)] = await self._records.read([message.user])
        expires_in = self._context.settings.typing_for if message.typing else 0
        frame = typing_frame(message.user, to=message.to, room=message.room, expires_in=expires_in)
        for outbox in self._recipients(message):  # again: connections may have unsubscribed or left meanwhile
            may_get = outbox.user in sights and may_hear_typing(presence, sights[outbox.user])
            if may_get and not outbox.closed and outbox.paused_at is None:
                outbox.send(frame)

    async def _still_members(self, room: str, users: Sequence[str]) -> list[str]:
        """Return those of the users that are members of the room. Without an answer a user counts as no member and gets
        no notice, but the room stays open."""
        members = {user: self._access.membership(room, user) for user in users}
        unknown = [user for user, member in members.items() if member is None]
        if unknown:
            answers = await asyncio.gather(*(self._is_member(room, user) for user in unknown))
            members.update(zip(unknown, answers, strict=True))
        return [user for user, member in members.items() if member]

    async def _is_member(self, room: str, user: str) -> bool:
        try:
            return await self._access.is_member(room, user)
        except Unavailable:
            return False

    def _recipients(self, message: TypingMessage) -> list[Outbox]:
        if message.room is not None:
            return [o for o in self._rooms.get(message.room, ()) if o.user != message.user]
        person = self._context.people.find(message.to or "")
        outboxes: Iterable[Outbox] = () if person is None else person.watchers.outboxes
        return [outbox for outbox in outboxes if holds(outbox.watching, message.user)]


def _not_a_member(room: str) -> ProtocolError:
    return ProtocolError("not_a_member", f"You are not a member of room {room}.")
