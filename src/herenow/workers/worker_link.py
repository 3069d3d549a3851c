"""Messages between a supervisor and its workers: one JSON object per line, over a pair of connected sockets.

When either process ends for any reason, the system closes the pair and the other one notices. A sender never waits: messages
to a process that does not read are dropped when the buffer is full. That is safe: heartbeats and questions are repeated, and
a dead worker is also noticed by its lease.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec

LINE = 16 * 1024 * 1024  # maximum bytes of a line: it may hold the reports of many workers
BUFFER = 32 * 1024 * 1024  # bytes that may wait for a process that does not read


class Place(msgspec.Struct, frozen=True, tag="place"):
    """To a worker, as the first message: its number, the number of workers, and the address to listen on."""

    number: int
    of: int
    host: str
    port: int


class Epoch(msgspec.Struct, frozen=True, tag="epoch"):
    """From a worker: it will write to the store under this epoch. Sent before the first such write."""

    epoch: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a worker: it accepts connections."""


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """From a worker, every second: its event loop is running."""


class Dead(msgspec.Struct, frozen=True, tag="dead"):
    """To workers: the processes that wrote under these epochs have ended."""

    epochs: list[str]


class Buried(msgspec.Struct, frozen=True, tag="buried"):
    """From a worker: it has handled the death of these epochs, as far as it could."""

    epochs: list[str]


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """To a worker: a new process replaces it. It stops accepting connections and shuts down."""


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """To a worker: it must read again what it can read again while it runs."""


class Question(msgspec.Struct, frozen=True, tag="question"):
    """To the supervisor: a request for the reports of all workers. To a worker: a request for its report."""

    number: int


class Report(msgspec.Struct, frozen=True, tag="report"):
    """From a worker: its report, opaque to the supervisor."""

    number: int
    body: bytes


class Told(msgspec.Struct, frozen=True):
    """The report of one worker."""

    worker: int
    restarts: int
    """Number of restarts after a death."""
    body: bytes | None
    """None if the worker did not answer."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """To the worker that sent the question: the reports of all workers."""

    number: int
    told: list[Told]


Message = Place | Epoch | Ready | Alive | Dead | Buried | Leave | Reload | Question | Report | Answer

_encode = msgspec.json.Encoder().encode
_decode: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class Link:
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
        """Yield the messages of the other process until it closes the link. Unknown messages (of a newer version) are
        skipped."""
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError):  # connection reset, or a line longer than `LINE`
                return
            if not line.endswith(b"\n"):
                return
            try:
                yield _decode.decode(line)
            except msgspec.DecodeError:
                continue

    def close(self) -> None:
        self._writer.close()
