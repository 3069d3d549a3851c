"""A minimal application: one page, and a token for the user named by its cookie.

It listens on a real port: a page without a network origin may not connect to this machine in Chromium.
"""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

from tests.processes import SECRET

from herenow.client import mint


class Site:
    def __init__(self, secret: str = SECRET) -> None:
        self._secret = secret
        self.files: dict[str, str] = {}
        """By path; files that are not pages are scripts."""
        self.url = ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()  # browsers keep some connections in reserve and never use them
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._reply(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # closed without a request
        finally:
            writer.close()
            self._connections.discard(writer)

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        address = urlsplit(head[0].split(" ")[1])
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        kind, body = self._answer(address.path, headers.get("cookie") or address.query)
        status = "404 Not Found" if body is None else "200 OK"
        content = (body or "").encode()
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-type: {kind}; charset=utf-8\r\ncache-control: no-store\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n".encode()
            + content
        )
        await writer.drain()

    def _answer(self, path: str, who: str) -> tuple[str, str | None]:
        """`who`: for example "user=ana", from the cookie, or from the query where cookies are unavailable."""
        if path == "/presence-token":
            return "text/plain", mint(self._secret, SimpleCookie(who)["user"].value)
        kind = "text/javascript" if path.endswith("js") else "text/html"
        return kind, self.files.get(path)
