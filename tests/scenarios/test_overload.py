"""A really overloaded node: other processes send more requests than it can answer and use its core, and its own
measurement reports it.

Delayed changes are counted by the node; changes that are never delayed are awaited on real sockets. Then the load
stops, and the delayed changes arrive. `tests/core` and `tests/node` test which change is delayed at which level.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from tests.processes import PATIENCE, Client, Server, token

CONNECTIONS = 150
"""Connections of each load process."""

PROCESSES = 8
"""At most this many of each kind."""

MEEKNESS = 5
"""The nice value of the node against other processes on its core."""

BURN = "while True: pass"


async def test_an_overloaded_node_delays_away_text_and_typing_but_not_online_and_offline_and_catches_up(
    start_server,
) -> None:
    server = await start_server(
        relations="open",
        log_format="json",
        beat_every=30,
        dead_after=90,
        idle_after=600,
        typing_min=0,  # a round that did not find the node late must not suppress the notice of the next round
    )
    async with server.client("ana") as ana, server.client("bo") as bo, server.client("cem") as cem:
        await bo.watch("ana")
        await bo.watch("cem")
        await ana.send("presence.typing", to="bo")  # from now on the node knows that ana may write to bo
        await bo.receive("presence.typing")
        async with _crowd(server) as crowd:
            while "text" not in _given_up(server):
                await crowd.grow()
            while not (text := await _all_of_it_while_late(server, ana, bo, cem)):
                await crowd.grow()
        await _until_it_gives_up(server, "nothing")
        await bo.until(lambda frame: _text(frame) == text)
        await bo.in_step()
        [status] = await server.rest("GET", "/presence?user_ids=ana", "bo", service=False)
        assert bo.shown("ana")[-1] == status["status"]
        counted = await _counted(server)
        assert counted["typing"] > 0
        assert counted["change"] > 0
        before = len(bo.frames)
        await ana.send("presence.typing", to="bo")
        await bo.receive("presence.typing", before)


async def _all_of_it_while_late(server: Server, ana: Client, bo: Client, cem: Client) -> str:
    """The text that ana wrote, if the node delayed at least away changes throughout; otherwise an empty string."""
    levels = _given_up(server)
    text = f"after {len(levels)} levels"
    await asyncio.gather(_idleness_text_and_typing(ana, text), _come_and_go(bo, cem))
    meanwhile = _given_up(server)[len(levels) - 1 :]
    return text if {"idleness", "text"}.issuperset(meanwhile) else ""


async def _idleness_text_and_typing(ana: Client, text: str) -> None:
    """Returns when her own devices have the changes; these are never delayed."""
    before = len(ana.frames)
    own = [frame["status"] for frame in ana.frames if frame["type"] == "presence.self"]
    idle = own[-1] != "away"
    await ana.send("presence.away" if idle else "presence.active")
    await ana.until(lambda frame: frame.get("status") == ("away" if idle else "online"), before)
    await ana.send("presence.set", custom_status={"text": text})
    await ana.until(lambda frame: _text(frame) == text, before)
    await ana.send("presence.typing", to="bo", id=text)  # a heartbeat may be answered before this is processed
    await ana.until(lambda frame: frame.get("id") == text, before)


async def _come_and_go(bo: Client, cem: Client) -> None:
    """Hides and shows cem instead of reconnecting, because a handshake is slow on such a node."""
    for mode, status in (("invisible", "offline"), ("auto", "online"), ("busy", "busy"), ("auto", "online")):
        before = len(bo.frames)
        await cem.send("presence.set", mode=mode)
        await bo.sees("cem", status, before)


async def _counted(server: Server) -> dict[str, float]:
    """Changes the node has shed since its start, by its own metrics."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE) as http:
        metrics = (await http.get("/metrics", headers={"authorization": f"Bearer {token('ops', 'service')}"})).text
    return {
        kind: float(times)
        for kind, times in re.findall(r'^herenow_given_up_total{kind="(\w+)"} (\S+)$', metrics, re.MULTILINE)
    }


def _text(frame: dict[str, object]) -> str | None:
    custom = frame.get("custom_status")
    return custom["text"] if isinstance(custom, dict) else None


def _given_up(server: Server) -> list[str]:
    """Every overload level since the start, from the log."""
    lines = [json.loads(line) for line in server.told().splitlines()]
    return ["nothing", *(line["given_up"] for line in lines if line["event"] == "overload")]


async def _until_it_gives_up(server: Server, level: str) -> None:
    async with asyncio.timeout(60):
        while _given_up(server)[-1] != level:
            await asyncio.sleep(0.1)


class _Crowd:
    """Processes that keep the node and its core busy until the end of the block."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._processes: list[asyncio.subprocess.Process] = []
        self._burning: list[asyncio.subprocess.Process] = []
        self._core = min(os.sched_getaffinity(0))
        for thread in (int(task.name) for task in Path(f"/proc/{server.pid}/task").iterdir()):
            os.sched_setaffinity(thread, {self._core})
            os.setpriority(os.PRIO_PROCESS, thread, MEEKNESS)

    async def grow(self) -> None:
        """Starts one more process of each kind, and waits a while."""
        assert len(self._processes) < PROCESSES, f"the node keeps up: {_given_up(self._server)}"
        burning = await asyncio.create_subprocess_exec(sys.executable, "-c", BURN)
        self._burning.append(burning)
        os.sched_setaffinity(burning.pid, {self._core})
        port = urlsplit(self._server.url).port
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.bulk_load", str(port), str(CONNECTIONS), stdin=-1
        )
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(token("ops", "service").encode() + b"\n")
        await process.stdin.drain()
        await asyncio.sleep(2)

    async def disperse(self) -> None:
        for burning in self._burning:
            burning.kill()
            await burning.wait()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            assert await process.wait() == 0


@asynccontextmanager
async def _crowd(server: Server) -> AsyncIterator[_Crowd]:
    crowd = _Crowd(server)
    try:
        yield crowd
    finally:
        await crowd.disperse()
