"""An application's token endpoint on a real port; the test chooses its answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

HANG = (0, "")
RESET = (-1, "")
HTML = "<!doctype html><title>502</title><p>nginx. Please try again later.</p>"


@dataclass
class Endpoint:
    """`answers` (status and body) are used up one by one, the last one for all further requests."""

    answers: list[tuple[int, str]]
    paths: list[str] = field(default_factory=list)
    """The path of each request."""
    url: str = ""

    async def __aenter__(self) -> Self:
        self._connections: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/presence-token"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.paths.append(head.split(" ")[1])
            status, body = answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer == HANG:
                await reader.read()
            elif answer == RESET:
                writer.transport.abort()
            else:
                length = "" if status == 204 else f"content-length: {len(body)}\r\n"
                writer.write(f"HTTP/1.1 {status} Status\r\nconnection: close\r\n{length}\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._connections.discard(writer)
