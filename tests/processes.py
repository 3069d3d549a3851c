"""A separate `herenow serve` process with short timings, and clients over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import websockets

from herenow.transport.auth import mint

SECRET = "a secret for the scenarios, long enough"
PATIENCE = 60.0
"""Seconds to wait for an expected event; an upper limit for hanging tests, not a promise."""

Frame = dict[str, Any]


def token(user: str, scope: str | None = None, ttl: float = 3600) -> str:
    return mint(SECRET, user, scope=scope, ttl=ttl, now=time.time())


class Server:
    """A `herenow` process that can be stopped, killed and started again on the same ledger."""

    def __init__(self, folder: Path, settings: dict[str, object], *command: str) -> None:
        """`command`: the arguments after `herenow`; `serve` by default."""
        self.folder = folder
        self._command = command or ("serve",)
        self.ledger = folder / "herenow.db"
        self._settings = {"beat_every": 1, "dead_after": 2, "grace": 1, "ledger_flush": 0.1, "port": 0, **settings}
        self.url = ""
        self.environment: dict[str, str] = {}
        """Environment variables in addition to the settings."""
        self.process: asyncio.subprocess.Process | None = None
        self._log = folder / "log"

    async def start(self) -> Server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("HERENOW_")}
        env |= {f"HERENOW_{name.upper()}": str(value) for name, value in self._settings.items()}
        if "secret_file" not in self._settings:
            env["HERENOW_SECRET"] = SECRET
        env |= self.environment
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "herenow.cli",
                *self._command,
                cwd=self.folder,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self.process.stdout.readline()).decode()
                assert line, self._log.read_text()
                found = re.search(r"is here: (http://\S+)|processes the timeouts of ", line)
                if found:
                    self.url = found[1] or ""
                    return self

    def told(self) -> str:
        """The log of the process."""
        return self._log.read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def stop(self) -> int:
        return await self._end(signal.SIGTERM)

    async def kill(self) -> int:
        return await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(how)
        async with asyncio.timeout(PATIENCE):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode

    @asynccontextmanager
    async def client(self, user: str, device: str | None = None, platform: str = "web") -> AsyncIterator[Client]:
        query = f"?platform={platform}" + (f"&device_id={device}" if device else "")
        address = self.url.replace("http", "ws", 1) + "/ws/presence" + query
        headers = {"authorization": f"Bearer {token(user)}"}
        async with websockets.connect(address, additional_headers=headers, ping_interval=None) as socket:
            client = Client(socket)
            try:
                await client.receive("presence.self")
                yield client
            finally:
                client.reader.cancel()

    async def rest(self, method: str, path: str, user: str = "ops", *, service: bool = True, **body: object) -> Any:
        headers = {"authorization": f"Bearer {token(user, 'service' if service else None)}"}
        async with httpx2.AsyncClient(base_url=self.url + "/api/v1", timeout=PATIENCE) as http:
            answer = await http.request(method, path, headers=headers, json=body or None)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    async def befriend(self, *users: str) -> None:
        for a in users:
            for b in users:
                if a != b:
                    await self.rest("PUT", f"/follows/{a}/{b}")


class Client:
    """A WebSocket client that keeps every frame it received."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Frame] = []
        """A frame with several statuses is kept as one entry per status."""
        self.messages = 0
        self._came = asyncio.Event()
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            frame = json.loads(message)
            self.messages += 1
            self.frames += frame["statuses"] if frame["type"] == "presence.statuses" else [frame]
            self._came.set()
        self._came.set()

    async def send(self, type_: str, **fields: object) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def until(self, wanted: Callable[[Frame], bool], after: int = 0) -> Frame:
        """The first matching frame after the first `after` frames; waits for it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for frame in self.frames[after:]:
                    if wanted(frame):
                        return frame
                self._came.clear()
                await self._came.wait()

    async def receive(self, type_: str, after: int = 0) -> Frame:
        return await self.until(lambda frame: frame.get("type") == type_, after)

    async def sees(self, user: str, status: str, after: int = 0) -> Frame:
        return await self.until(lambda f: f.get("user_id") == user and f.get("status") == status, after)

    async def watch(self, user: str) -> Frame:
        before = len(self.frames)
        await self.send("presence.subscribe", target_user_id=user, id=f"watch-{user}")
        return await self.until(lambda frame: frame.get("id") == f"watch-{user}", before)

    def shown(self, user: str) -> list[str]:
        """Statuses received about a user, in order."""
        return [frame["status"] for frame in self.frames if frame.get("user_id") == user and "status" in frame]

    async def in_step(self) -> None:
        """Wait until every frame sent before this call has been received."""
        before = len(self.frames)
        await self.send("presence.heartbeat", id=f"step-{before}")
        await self.until(lambda frame: frame.get("id") == f"step-{before}", before)

    async def closed(self) -> tuple[int | None, str]:
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason or ""
