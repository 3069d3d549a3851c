"""A reader who follows a guide: an empty folder, terminals, and files saved under the names the page gives.

Commands are run by bash unchanged, with `set -e` so that no failure is missed. Two things differ, because tests share a
machine: named ports are replaced by free ones, and timings are short (by `HERENOW_*` variables, which a flag on the
page overrides).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.processes import PATIENCE, Server

LONG = 5 * PATIENCE
"""Seconds; an installation beside other tests is slow."""
SHORT = {"HERENOW_BEAT_EVERY": "1", "HERENOW_DEAD_AFTER": "5", "HERENOW_GRACE": "1", "HERENOW_LEDGER_FLUSH": "0.1"}


def needs(*programs: str) -> None:
    """Skip or fail if programs that the pages assume are missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {missing}")
    if missing:
        pytest.skip(f"not installed: {missing}")


class Reader:
    def __init__(self, folder: Path, *ports: int, settings: dict[str, str] | None = None) -> None:
        """`ports` are those named on the page; each is replaced by a free one."""
        self.folder = folder
        self.server: Server
        self.places: tuple[str, ...] = ()
        """System folders named on the page; each is replaced by one below the reader's folder."""
        self.ports = {port: free_port() for port in ports}
        self._terminals: list[Terminal] = []
        programs = Path(sys.executable).parent
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HERENOW_", "PYTHON"))},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            **SHORT,
            **(settings or {}),
        }
        self.environment.pop("VIRTUAL_ENV", None)

    def here(self, text: str) -> str:
        """The text with ports and folders replaced."""
        for said, port in self.ports.items():
            text = re.sub(rf"\b{said}\b", str(port), text)
        for place in self.places:
            text = re.sub(rf"(?<!\w){place}", f"{self.folder}{place}", text)
        return text

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def save(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.here(text), encoding="utf-8")
        return file

    def terminal(self) -> Terminal:
        self._terminals.append(Terminal(self))
        return self._terminals[-1]

    async def end(self) -> None:
        for terminal in self._terminals:
            await terminal.interrupt()


class Terminal:
    """A shell that keeps its folder and variables between commands."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.environment = dict(reader.environment)
        self.folder = reader.folder
        self._running: asyncio.subprocess.Process | None = None
        self._said: list[str] = []
        self._came = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def run(self, commands: str) -> str:
        """Runs commands to the end and returns their output; raises if one fails."""
        notes = self._reader.folder / ".environment"
        script = f"set -eu -o pipefail\nset -a\n{self._reader.here(commands)}\nenv -0 > {notes}\n"
        process = await self._start(script)
        async with asyncio.timeout(LONG):
            printed, complaints = await process.communicate()
        assert process.returncode == 0, f"{commands}\n{printed.decode()}\n{complaints.decode()}"
        self.environment = dict(
            each.split("=", 1) for each in notes.read_text(encoding="utf-8").split("\0") if "=" in each
        )
        self.folder = Path(self.environment["PWD"])
        notes.unlink()
        return printed.decode()

    async def start(self, command: str, until: str) -> str:
        """Starts a command that does not end; returns its output up to `until`."""
        self._running = await self._start(f"set -eu\n{self._reader.here(command)}", merged=True)
        self._said.clear()
        self._listener = asyncio.create_task(self._listen(self._running))
        return await self.says(until)

    async def says(self, words: str) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                while words not in self.said:
                    self._came.clear()
                    assert self._listener is not None
                    assert not self._listener.done(), f"ended: {self.said}"
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"{words!r} did not come: {self.said}") from None
        return self.said

    @property
    def said(self) -> str:
        return "".join(self._said)

    async def interrupt(self) -> None:
        """Ctrl-C."""
        process, self._running = self._running, None
        if process is None:
            return
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if self._listener is not None:
            await self._listener

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._said.append(line.decode())
            self._came.set()
        self._came.set()

    async def _start(self, script: str, *, merged: bool = False) -> asyncio.subprocess.Process:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # Background jobs of a shell ignore SIGINT, and so would commands started here.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def looks_like(printed: str, shown: str) -> None:
    """Asserts that the output matches what the page shows, where … matches anything."""
    parts = [re.escape(part.strip()) for part in shown.strip().split("…")]
    assert re.fullmatch(".*?".join(f"\\s*{part}\\s*" for part in parts), printed.strip(), re.DOTALL), (
        f"printed:\n{printed}\nbut the page shows:\n{shown}"
    )
