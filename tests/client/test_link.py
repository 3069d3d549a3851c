"""The Python SDK against a scripted server: events between a request and its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
import websockets
from tests.processes import PATIENCE, SECRET

from herenow.client import Closed, Herenow, Unavailable, link, live, mint
from herenow.client.interest import Interest
from herenow.client.token_source import Token
from herenow.client.tokens import wall_clock

pytestmark = pytest.mark.asyncio

Part = Callable[[websockets.ServerConnection, int], Awaitable[None]]


async def play(part: Part) -> websockets.Server:
    """A server that welcomes every connection and then runs `part` with the number of the connection."""
    count = 0

    async def serve(socket: websockets.ServerConnection) -> None:
        nonlocal count
        count += 1
        welcome = {
            "type": "presence.welcome",
            "user_id": "ana",
            "device_id": "d",
            "session_id": "s",
            "beat_every": 30,
            "idle_after": 300,
            "server_time": round(wall_clock() * 1000),
            "limits": {"subscriptions": 500, "frame": 65536, "bulk": 1000},
        }
        await socket.send(json.dumps(welcome))
        await part(socket, count)

    return await websockets.serve(
        serve, "127.0.0.1", 0, subprotocols=[websockets.Subprotocol("herenow.v1")], close_timeout=1
    )


def client(server: websockets.Server, token: Token | None = None) -> Herenow:
    port = next(iter(server.sockets)).getsockname()[1]
    return Herenow(f"ws://127.0.0.1:{port}/", token or (lambda: mint(SECRET, "ana")), device_id="d")


async def hear(socket: websockets.ServerConnection, kind: str) -> dict[str, object]:
    async for payload in socket:
        frame: dict[str, object] = json.loads(payload)
        if frame["type"] == kind:
            return frame
    raise AssertionError(f"no {kind} came")


async def test_the_python_client_sends_a_mode_again_on_the_next_connection_if_its_answer_was_lost():
    said = []

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        frame = await hear(socket, "presence.set")
        said.append((number, frame["mode"]))
        if number == 1:
            await socket.close(1012, "retry_after_ms=1")
        else:
            await socket.send(json.dumps({"type": "presence.ok", "id": frame["id"]}))
            await socket.wait_closed()

    async with await play(part) as server, client(server) as here, asyncio.timeout(PATIENCE):
        await here.set(mode="busy")
    assert said == [(1, "busy"), (2, "busy")]


async def test_the_python_client_sends_a_mode_set_while_the_connection_ends_on_the_next_connection(monkeypatch):
    async def part(socket: websockets.ServerConnection, number: int) -> None:
        frame = await hear(socket, "presence.set")
        await socket.send(json.dumps({"type": "presence.ok", "id": frame["id"]}))
        await socket.wait_closed()

    async with await play(part) as server, client(server) as here, asyncio.timeout(PATIENCE):
        await here.connected()
        socket = here._link._socket
        assert socket is not None
        socket.transport.abort()
        await asyncio.sleep(0)
        await here.set(mode="busy")


async def test_setting_a_mode_in_the_python_client_times_out_without_an_answer(monkeypatch):
    monkeypatch.setattr(live, "ANSWER", 0.3)

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        await socket.wait_closed()

    async with await play(part) as server, client(server) as here:
        await here.connected()
        with pytest.raises(Unavailable):
            await here.set(mode="busy")


async def test_the_python_client_retries_a_failed_token_renewal_before_the_token_expires(monkeypatch):
    monkeypatch.setattr(link, "PATIENCE", 0.05)
    refreshed = asyncio.get_running_loop().create_future()
    asked = 0

    def source() -> str:
        nonlocal asked
        asked += 1
        if asked in (2, 3):
            raise RuntimeError("the back end is away")
        return mint(SECRET, "ana", ttl=3 if asked == 1 else 3600)

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        refreshed.set_result(await hear(socket, "presence.refresh"))
        await socket.wait_closed()

    async with await play(part) as server, client(server, source) as here, asyncio.timeout(PATIENCE):
        assert (await refreshed)["token"]
        assert [error.code for error in here.errors] == ["token_failed"] * 2
        assert here.state.phase == "connected"


async def test_a_renewed_token_of_another_user_closes_the_python_client(monkeypatch):
    users = iter(["ana", "bo"])
    connections = 0

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        nonlocal connections
        connections = number
        await socket.wait_closed()

    source = lambda: mint(SECRET, next(users), ttl=1.5)  # noqa: E731 - it is handed on
    async with await play(part) as server, client(server, source) as here, asyncio.timeout(PATIENCE):
        with pytest.raises(Closed, match="token_other_user"):
            async for _ in here.watch(["chen"]):
                pass
    assert connections == 1


async def test_an_internal_error_of_the_python_client_is_raised_to_every_waiting_reader(monkeypatch):
    async def part(socket: websockets.ServerConnection, number: int) -> None:
        await socket.wait_closed()

    monkeypatch.setattr(Interest, "reset", lambda self: 1 / 0)
    async with await play(part) as server, client(server) as here, asyncio.timeout(PATIENCE):
        with pytest.raises(ZeroDivisionError):
            async for _ in here.watch(["chen"]):
                pass


async def test_the_python_client_sends_two_thousand_watches_in_two_subscribe_frames():
    asked = asyncio.get_running_loop().create_future()

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        asked.set_result([await hear(socket, "presence.subscribe") for _ in range(2)])
        await socket.wait_closed()

    async with await play(part) as server, client(server) as here, asyncio.timeout(PATIENCE):
        watches = [here.watch([f"user-{number}"]) for number in range(2_000)]
        listed = [frame["target_user_ids"] for frame in await asked]
        assert [len(users) for users in listed] == [1_000, 1_000]  # `bulk` of the welcome
        assert len({*listed[0], *listed[1]}) == len(watches)
