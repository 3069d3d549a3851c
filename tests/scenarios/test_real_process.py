"""Situations about time, against a separate process over real sockets, with short timings.

No test asserts times by our clock: it compares the server's own timestamps and the order of frames.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.processes import PATIENCE, Server, token


def now() -> int:
    return time.time_ns() // 1_000_000


async def silent_socket(server: Server, user: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket of a peer that vanishes: it answers no ping and sends no FIN."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        (
            f"GET /ws/presence?device_id=half HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"Authorization: Bearer {token(user)}\r\n\r\n"
        ).encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def beat_frame() -> bytes:
    payload = b'{"type":"presence.heartbeat"}'
    return bytes((0x81, 0x80 | len(payload), 0, 0, 0, 0)) + payload


async def test_A2_a_user_whose_connection_went_silent_is_offline_after_dead_after_and_the_reconnect_window(
    start_server,
) -> None:
    server = await start_server()
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana:
        await ana.watch("bo")
        _, writer = await silent_socket(server, "bo")
        online = await ana.sees("bo", "online")
        before = now()
        writer.write(beat_frame())
        await writer.drain()
        gone = await ana.sees("bo", "offline", after=ana.frames.index(online))
        writer.close()
    assert before - 50 <= gone["last_seen"] <= before + 1000  # the heartbeat, not the detection
    due = gone["last_seen"] + 2000 + 1000
    assert due <= gone["as_of"] <= due + 1000


async def test_B1_a_user_who_returns_within_the_reconnect_window_is_never_shown_offline(start_server) -> None:
    server = await start_server(grace=5)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana:
        await ana.watch("bo")
        for _ in range(3):
            async with server.client("bo", "phone"):
                pass
        async with server.client("bo", "phone") as bo:
            await bo.send("presence.set", mode="busy")
            await ana.sees("bo", "busy")
    assert ana.shown("bo") == ["offline", "online", "busy"]


async def test_B2_a_user_who_returns_after_the_reconnect_window_was_shown_offline_in_between(start_server) -> None:
    server = await start_server(grace=0.3)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana:
        await ana.watch("bo")
        async with server.client("bo", "phone"):
            online = await ana.sees("bo", "online")
        gone = await ana.sees("bo", "offline", after=ana.frames.index(online))
        async with server.client("bo", "phone"):
            await ana.sees("bo", "online", after=ana.frames.index(gone))
    assert gone["as_of"] >= gone["last_seen"] + 300
    assert ana.shown("bo") == ["offline", "online", "offline", "online"]


async def test_C1_signing_out_the_active_of_two_devices_shows_the_user_away_at_once(start_server) -> None:
    server = await start_server(grace=60)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana, server.client("bo", "phone", "mobile") as phone:
        await ana.watch("bo")
        await phone.send("presence.away", id=1)
        away = await ana.sees("bo", "away")
        async with server.client("bo", "laptop") as laptop:
            online = await ana.sees("bo", "online", after=ana.frames.index(away))
            await laptop.send("presence.bye")
            assert await laptop.closed() == (1000, "signed out")
        again = await ana.sees("bo", "away", after=ana.frames.index(online))
    assert again["since"] == away["since"]  # the phone's last activity
    assert again["platforms"] == ["mobile"]


async def test_C1_losing_the_active_of_two_devices_shows_no_change_until_its_reconnect_window_ends(
    start_server,
) -> None:
    server = await start_server(grace=0.5)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana, server.client("bo", "phone", "mobile") as phone:
        await ana.watch("bo")
        await phone.send("presence.away", id=1)
        away = await ana.sees("bo", "away")
        async with server.client("bo", "laptop"):
            online = await ana.sees("bo", "online", after=ana.frames.index(away))
            dropped = now()
        away = await ana.sees("bo", "away", after=ana.frames.index(online))
    assert away["as_of"] >= dropped + 500 - 50
    assert ana.shown("bo")[-2:] == ["online", "away"]


async def test_D2_a_busy_mode_with_an_end_time_ends_then_and_shows_the_user_online(start_server) -> None:
    server = await start_server()
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana, server.client("bo") as bo:
        await ana.watch("bo")
        until = now() + 700
        await bo.send("presence.set", mode="busy", until=until)
        busy = await ana.sees("bo", "busy")
        back = await ana.sees("bo", "online", after=ana.frames.index(busy))
        own = await bo.until(lambda f: f["type"] == "presence.self" and f["mode"] == "auto", after=2)
    assert until <= back["as_of"] <= until + 1000
    assert back["since"] == until
    assert own["until"] is None


async def test_I1_a_typing_notice_of_a_killed_tab_expires_after_the_setting_typing_for(start_server) -> None:
    server = await start_server(typing_for=0.8)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana:
        await ana.watch("bo")
        async with server.client("bo") as bo:
            await bo.send("presence.typing", to="ana")
            typing = await ana.receive("presence.typing")
            bo.socket.transport.abort()
        await ana.sees("bo", "offline", after=ana.frames.index(typing))
        await ana.in_step()
    # The frame contains its end; no other frame is sent or needed.
    assert typing["expires_in"] == 0.8
    assert [f for f in ana.frames if f["type"] == "presence.typing"] == [typing]


def open_marks(ledger: Path) -> set[str]:
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        return {user for (user,) in db.execute("select user from open_marks")}


async def marked(ledger: Path, *, here: set[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while open_marks(ledger) != here:
            await asyncio.sleep(0.05)


async def test_H1_after_kill_9_of_the_server_visible_users_have_a_last_seen_of_seconds_before_the_kill(
    start_server,
) -> None:
    server = await start_server()
    await server.befriend("ana", "bo", "chen")
    async with server.client("ana"), server.client("bo"), server.client("chen") as chen:
        await chen.send("presence.set", mode="invisible", id="hide")
        await chen.until(lambda frame: frame.get("id") == "hide")
        hidden_by = now()
        await marked(server.ledger, here={"ana", "bo"})
        await asyncio.sleep(1.5)  # let the run be stamped again: chen is hidden meanwhile
        await server.kill()
        killed = now()
    await server.start()
    ana, bo, chen_seen = await server.rest("GET", "/presence?user_ids=ana,bo,chen")
    for person in (ana, bo):
        assert person["status"] == "offline"
        assert killed - 2500 <= person["last_seen"] <= killed
    assert chen_seen["last_seen"] <= hidden_by
    assert open_marks(server.ledger) == set()


async def test_a_stopped_server_tells_clients_when_to_reconnect_and_keeps_modes_and_custom_texts(start_server) -> None:
    server = await start_server(grace=30)
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana, server.client("bo") as bo:
        await ana.watch("bo")
        await bo.send("presence.set", mode="busy", custom_status={"text": "In a meeting"}, id=1)
        await ana.sees("bo", "busy")
        stopping = now()
        assert await server.stop() == 0
        code, reason = await ana.closed()
        assert code == 1012
        assert 0 <= int(reason.removeprefix("retry_after_ms=")) <= 10_000
    await server.start()
    [seen] = await server.rest("GET", "/presence?user_ids=bo")
    assert seen["status"] == "offline"
    assert stopping - 2000 <= seen["last_seen"] <= now()
    async with server.client("ana") as ana, server.client("bo") as bo:
        back = await ana.watch("bo")
        assert (back["status"], back["custom_status"]["text"]) == ("busy", "In a meeting")
