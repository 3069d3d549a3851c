"""What a supervisor and its workers say to each other: one JSON object per line, over a pair of connected sockets.

The pair is also how either learns of the other's end, whatever its cause: the system closes it. Nobody ever waits for the
other to read. What does not fit into the buffer of one that stands still is dropped: signs of life and questions, which are
repeated, and news of the dead, which leases tell too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec

LINE = 16 * 1024 * 1024
"""Bytes of a line at most: the reports of many workers together."""

BUFFER = 32 * 1024 * 1024
"""Bytes that may wait for somebody who does not read."""


class Place(msgspec.Struct, frozen=True, tag="place"):
    """To a worker, first: which of how many it is, and where it listens."""

    number: int
    of: int
    host: str
    port: int


class Epoch(msgspec.Struct, frozen=True, tag="epoch"):
    """From a worker, before it uses it: under this epoch it will write."""

    epoch: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a worker: it takes connections."""


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """From a worker, every second: its loop turns."""


class Dead(msgspec.Struct, frozen=True, tag="dead"):
    """To workers: the process that wrote under these epochs has ended."""

    epochs: list[str]


class Buried(msgspec.Struct, frozen=True, tag="buried"):
    """From a worker: it has heard of these dead, and done what it could."""

    epochs: list[str]


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """To a worker: another takes its place. Take no more connections, and end in order."""


class Question(msgspec.Struct, frozen=True, tag="question"):
    """To the supervisor: what do all workers say of themselves? To a worker: what do you?"""

    number: int


class Report(msgspec.Struct, frozen=True, tag="report"):
    """From a worker: its answer, which the supervisor does not understand."""

    number: int
    body: bytes


class Told(msgspec.Struct, frozen=True):
    """Of one worker."""

    worker: int
    restarts: int
    """How often it had to be started again."""
    body: bytes | None
    """None: it does not answer."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """To the worker that asked."""

    number: int
    told: list[Told]


Message = Place | Epoch | Ready | Alive | Dead | Buried | Leave | Question | Report | Answer

_encode = msgspec.json.Encoder().encode
_decode: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class Link:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Link:
        return cls(*await asyncio.open_unix_connection(sock=end, limit=LINE))

    def send(self, message: Message) -> None:
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < BUFFER:
            self._writer.write(_encode(message) + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        """Until the other end is gone. What a newer program says that this one does not know is passed over."""
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError):  # reset; or a line beyond all measure
                return
            if not line.endswith(b"\n"):
                return
            try:
                yield _decode.decode(line)
            except msgspec.DecodeError:
                continue

    def close(self) -> None:
        self._writer.close()
