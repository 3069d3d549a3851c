"""What nodes say to each other, and which part of this one each message is for.

Does not know what follows from a message, nor what it means that one is lost: that is a matter of the part it is for.
"""

from __future__ import annotations

import asyncio

import msgspec

from herenow.errors import Unavailable
from herenow.kit.deadline import DEADLINE, read_within
from herenow.kit.tasks import Tasks
from herenow.node.admin.users import EndMessage, Users, VoidMessage
from herenow.node.cluster.reaper_assignment import ReapsMessage, Shares
from herenow.node.viewing.relation_events import ChangedMessage, News
from herenow.node.viewing.typing import TypingMessage, TypingRooms
from herenow.ports import Engine

Message = TypingMessage | EndMessage | VoidMessage | ChangedMessage | ReapsMessage

LISTEN = 1.0
"""Seconds that one call waits for messages."""

LISTEN_AGAIN = 0.2
"""Seconds after which a store that was away is asked again."""


class Mail:
    def __init__(
        self,
        *,
        engine: Engine,
        typing: TypingRooms,
        news: News,
        shares: Shares,
        users: Users,
        tasks: Tasks,
    ) -> None:
        self._engine = engine
        self._typing = typing
        self._news = news
        self._shares = shares
        self._users = users
        self._tasks = tasks

    async def receive(self) -> None:
        try:
            messages = await read_within(self._engine.receive(LISTEN), LISTEN + DEADLINE)
        except Unavailable:
            await asyncio.sleep(LISTEN_AGAIN)
            return
        for message in messages:
            try:
                told = msgspec.json.decode(message, type=Message)
            except msgspec.DecodeError:
                continue  # of a newer node: best effort
            self._pass_on(told)

    def _pass_on(self, told: Message) -> None:
        if isinstance(told, TypingMessage):
            self._tasks.spawn(self._typing.receive(told), "typing")  # who may hear it may take its time
        elif isinstance(told, ChangedMessage):
            self._news.receive(told)
        elif isinstance(told, ReapsMessage):
            if self._shares.receive(told):
                self._tasks.spawn(self._shares.tell(), "shares")
        else:
            self._users.receive(told)
