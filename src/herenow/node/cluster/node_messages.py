"""Messages between nodes: best effort, in no order. Each part registers the kinds it handles. Nothing may depend on a
message: its content must become known in another way, too, only later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import reduce
from operator import or_
from secrets import token_urlsafe
from typing import Any, TypeVar

import msgspec

from herenow.errors import Unavailable
from herenow.kit.deadline import DEADLINE, read_within, write_within
from herenow.ports import Engine

LISTEN = 1.0  # seconds for which one call waits for messages
LISTEN_AGAIN = 0.2  # seconds until the next attempt if the store is unreachable

Message = TypeVar("Message", bound=msgspec.Struct)


class NodeMessages:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._handlers: dict[type[msgspec.Struct], Callable[[Any], None]] = {}
        self._decoder: msgspec.json.Decoder[msgspec.Struct] | None = None
        self.origin = token_urlsafe(6)  # id of this process as the sender, to ignore its own messages

    def handle(self, kind: type[Message], handler: Callable[[Message], None]) -> None:
        """Register a handler for all messages of this kind, a struct with a tag. It is also called with messages that
        this node sent."""
        self._handlers[kind] = handler
        self._decoder = None

    async def send(self, message: msgspec.Struct) -> None:
        """Send a message to all nodes, including this one. Raises `Unavailable` or `UnknownOutcome`."""
        await write_within(self._engine.send(msgspec.json.encode(message)))

    async def receive(self) -> None:
        """Wait up to `LISTEN` seconds for messages, and call the handlers of those that arrived. Call in a loop."""
        try:
            messages = await read_within(self._engine.receive(LISTEN), LISTEN + DEADLINE)
        except Unavailable:
            await asyncio.sleep(LISTEN_AGAIN)
            return
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(reduce(or_, self._handlers))
        for encoded in messages:
            try:
                message = self._decoder.decode(encoded)
            except msgspec.DecodeError:
                continue  # from a newer node
            self._handlers[type(message)](message)
