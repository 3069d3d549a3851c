"""The WebSocket contract on a whole node in this process, over real sockets: J1 to J3, and what clients rely on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import jwt
import pytest
import websockets
from structlog.testing import capture_logs
from tests.processes import PATIENCE, SECRET, Client, token
from websockets.exceptions import InvalidStatus

from herenow.app import running
from herenow.node.people import Outbox
from herenow.node.sessions.modes import Modes
from herenow.node.viewing.subscriptions import Granted, Subscriptions
from herenow.settings import Settings
from herenow.transport.http import Listener


class Here:
    """A running node."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ws = url.replace("http", "ws", 1) + "/ws/presence"

    @asynccontextmanager
    async def client(self, user: str, query: str = "", **options: Any) -> AsyncIterator[Client]:
        headers = {"authorization": f"Bearer {token(user)}"} | options.pop("headers", {})
        async with websockets.connect(self.ws + query, additional_headers=headers, **options) as socket:
            client = Client(socket)
            try:
                await client.receive("presence.self")
                yield client
            finally:
                client.reader.cancel()

    async def befriend(self, a: str, b: str) -> None:
        await self.put(f"/follows/{a}/{b}")
        await self.put(f"/follows/{b}/{a}")

    async def put(self, path: str, method: str = "PUT", **options: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token('backend', 'service')}"} | options.pop("headers", {})
        async with httpx2.AsyncClient(base_url=self.url + "/api/v1", headers=headers) as http:
            answer = await http.request(method, path, **options)
        assert answer.status_code < 300, answer.text
        return answer


def settings(**changed: Any) -> Settings:
    chosen: dict[str, Any] = {"port": 0, "ledger": "sqlite://", "secret": SECRET, "log_level": "error"}
    return Settings(**(chosen | changed))


@asynccontextmanager
async def node(**changed: Any) -> AsyncIterator[Here]:
    chosen = settings(**changed)
    with Listener(chosen) as listener:
        async with running(chosen, listener):
            yield Here(listener.url)


@pytest.fixture(params=["picows", "websockets"])
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Here]:
    async with node(websocket=request.param) as running_node:
        yield running_node


async def closed_with(address: str, **options: Any) -> tuple[int | None, str]:
    async with asyncio.timeout(PATIENCE), websockets.connect(address, **options) as socket:
        await socket.wait_closed()
    return socket.close_code, socket.close_reason or ""


# What clients rely on


async def test_a_minimal_websocket_client_can_send_a_heartbeat_and_subscribe_to_a_numeric_user_id(here: Here) -> None:
    await here.befriend("123", "456")
    headers = {"authorization": f"Bearer {token('123')}"}
    async with websockets.connect(here.ws + "/", additional_headers=headers) as socket:
        await socket.send('{"type":"presence.heartbeat"}')
        await socket.send('{"type":"presence.subscribe","target_user_id":456}')
        frames = [json.loads(await socket.recv()) for _ in range(3)]
    assert [frame["type"] for frame in frames] == ["presence.welcome", "presence.self", "presence.status"]
    assert (frames[2]["user_id"], frames[2]["status"]) == ("456", "offline")


async def test_the_first_frames_of_a_websocket_are_presence_welcome_and_presence_self(here: Here) -> None:
    async with here.client("ana", "?platform=desktop") as ana:
        await ana.socket.send("rubbish")
        await ana.receive("presence.error")
    assert [frame["type"] for frame in ana.frames] == ["presence.welcome", "presence.self", "presence.error"]
    welcome, own, _ = ana.frames
    assert welcome["user_id"] == "ana"
    assert welcome["beat_every"] == 30
    assert welcome["idle_after"] == 300
    assert welcome["limits"] == {"subscriptions": 500, "frame": 65536, "bulk": 1000}
    assert own["devices"][0]["device_id"] == welcome["device_id"]
    assert own["devices"][0]["platform"] == "desktop"


async def test_answers_to_websocket_commands_come_in_order_and_repeat_the_id_of_the_command(here: Here) -> None:
    await here.befriend("ana", "bo")
    async with here.client("ana") as ana:
        await ana.send("presence.subscribe", target_user_ids=["bo", "nobody", 7, "a b"], id="list")
        await ana.send("presence.active", id=1)
        await ana.send("presence.unsubscribe", target_user_ids=["bo"], id=2)
        await ana.send("presence.subscribe", target_user_id=True, id=3)
        await ana.send("presence.subscribe", contacts=True, id=4)
        await ana.until(lambda frame: frame.get("user_id") == "bo", after=6)
    answers = [(frame["type"], frame.get("id")) for frame in ana.frames[2:] if "type" in frame]
    assert answers == [
        ("presence.subscribe.denied", "list"),
        ("presence.ok", 1),
        ("presence.unsubscribed", 2),
        ("presence.subscribe.denied", 3),
    ]
    reasons = {(d["target_user_id"], d["reason"]) for d in ana.frames[3]["denied"]}
    assert reasons == {("nobody", "not_mutual_followers"), ("7", "not_mutual_followers"), ("a b", "invalid_user_id")}


async def test_F2_a_subscribe_to_500_users_is_answered_in_few_frames_with_every_denied_user_listed(here: Here) -> None:
    friends = [f"u{number}" for number in range(497)]
    rows = "".join(json.dumps({"kind": "contact", "a": "ana", "b": friend}) + "\n" for friend in friends)
    await here.put("/relations", "POST", content=rows, headers={"content-type": "application/x-ndjson"})
    async with here.client("ana") as ana:
        targets = [*friends, "stranger", "nobody", "a b"]
        await ana.send("presence.subscribe", target_user_ids=targets, id="all")
        await ana.in_step()
        messages = ana.messages
    shown = [frame["user_id"] for frame in ana.frames if {"status", "user_id"} <= frame.keys()]
    assert sorted(shown) == sorted(friends)
    [denial] = [frame for frame in ana.frames if frame.get("type") == "presence.subscribe.denied"]
    assert {(row["target_user_id"], row["reason"]) for row in denial["denied"]} == {
        ("stranger", "not_mutual_followers"),
        ("nobody", "not_mutual_followers"),
        ("a b", "invalid_user_id"),
    }
    assert messages <= 8


async def test_A9_times_that_a_client_puts_into_its_frames_do_not_change_last_seen(here: Here) -> None:
    await here.befriend("ana", "bo")
    async with here.client("bo") as bo:
        await bo.watch("ana")
        came = time.time() * 1000
        async with here.client("ana") as ana:
            for hours in (-2, 2):
                claimed = int(came + hours * 3_600_000)
                claims = {"timestamp": claimed, "ts": claimed, "at": claimed, "sent_at": claimed}
                for kind in ("presence.heartbeat", "presence.active", "presence.away"):
                    await ana.send(kind, **claims, id=f"{kind} {hours}")
            await ana.until(lambda frame: frame.get("id") == "presence.away 2")
            assert not [frame for frame in ana.frames if frame["type"] == "presence.error"]
            await ana.send("presence.bye")
            await ana.closed()
        gone = await bo.sees("ana", "offline", after=3)
    left = time.time() * 1000
    times = [f["since"] for f in bo.frames if f.get("user_id") == "ana" and f["since"]] + [gone["last_seen"]]
    assert len(times) > 2
    assert came - 1_000 <= min(times) <= max(times) <= left + 1_000


async def test_a_websocket_token_is_accepted_in_header_subprotocol_or_query(here: Here) -> None:
    ana = token("ana")
    for options in (
        {"uri": here.ws, "additional_headers": {"authorization": f"Bearer {ana}"}},
        {"uri": here.ws, "subprotocols": ["herenow.v1", f"herenow.token.{ana}"]},
        {"uri": f"{here.ws}?token={ana}"},
    ):
        async with websockets.connect(**options) as socket:
            assert json.loads(await socket.recv())["user_id"] == "ana"
            assert socket.subprotocol in ("herenow.v1", None)


# J1: malformed input


async def test_J1_malformed_websocket_frames_get_an_error_each_and_many_close_the_connection_with_4400(
    here: Here,
) -> None:
    rubbish: list[str | bytes] = [
        "{",
        "[]",
        '"x"',
        '{"type":"presence.nonsense"}',
        '{"type":7}',
        '{"no":"type"}',
        '{"type":"presence.subscribe"}',
        '{"type":"presence.subscribe","target_user_ids":"bo"}',
        '{"type":"presence.heartbeat","type":"presence.bye"}',
        "[" * 10_000,
        b"binary",
        '{"type":"presence.heartbeat","id":{"a":1}}',
    ]
    async with here.client("ana") as ana:
        for message in rubbish:
            await ana.socket.send(message)
        await ana.until(lambda _: len(ana.frames) == 2 + len(rubbish))
        assert all(f["type"] == "presence.error" and f["code"] and f["message"] for f in ana.frames[2:])
        await ana.in_step()  # it still works
        for _ in range(21 - len(rubbish)):
            await ana.socket.send("{")
        code, _ = await ana.closed()
    assert code == 4400


async def test_J1_refused_commands_do_not_count_as_malformed_frames(here: Here) -> None:
    async with here.client("ana") as ana:
        for number in range(30):
            await ana.send("room.open", room=f"r{number}", id=number)
        await ana.until(lambda frame: frame.get("id") == 29)
        assert {frame["code"] for frame in ana.frames[2:]} == {"not_a_member"}
        await ana.in_step()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?device_id=a%20b", "invalid_id"),
        ("?device_id=%ff", "invalid_id"),
        ("?device_id=a&device_id=b", "bad_shape"),
        ("?platform=toaster", "invalid_platform"),
        ("?platform=web&platform=web", "bad_shape"),
    ],
)
async def test_J1_a_websocket_url_with_a_wrong_query_gets_an_error_frame_before_the_close(
    here: Here, query: str, code: str
) -> None:
    headers = {"authorization": f"Bearer {token('ana')}"}
    async with websockets.connect(here.ws + query, additional_headers=headers) as socket:
        assert json.loads(await socket.recv())["code"] == code
        await socket.wait_closed()
    assert socket.close_code == 4400


@pytest.mark.parametrize("size", [70_000, 1_048_576])
async def test_J1_a_too_large_websocket_message_closes_only_its_own_connection(here: Here, size: int) -> None:
    async with here.client("ana") as ana, here.client("bo") as bo:
        with suppress(websockets.ConnectionClosed):  # it may be closed before it has sent everything
            await ana.socket.send("x" * size)
        assert (await ana.closed())[0] == 1009
        await bo.in_step()


# J2, J3: tokens


def forged(**claims: Any) -> str:
    return jwt.encode({"sub": "ana", "exp": time.time() + 60} | claims, SECRET, algorithm="HS256")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "token_missing"),
        ("rubbish", "token_malformed"),
        (
            jwt.encode({"sub": "ana", "exp": time.time() + 60}, "another secret of more than 32 bytes"),
            "token_bad_signature",
        ),
        (jwt.encode({"sub": "ana", "exp": time.time() + 60}, "", algorithm="none"), "token_algorithm"),
        (forged(exp=time.time() - 1), "token_expired"),
        (forged(exp=time.time() + 10 * 86_400), "token_claims"),
        (forged(sub="a b"), "token_claims"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("token_") else "",
)
async def test_J2_a_websocket_with_a_bad_token_is_closed_with_4401(here: Here, bad: str, reason: str) -> None:
    assert await closed_with(f"{here.ws}?token={bad}") == (4401, reason)


@pytest.mark.parametrize("scope", ["service", "read", "openid herenow:beats"])
async def test_a_websocket_with_a_service_token_is_closed_with_4403_and_a_sentence(here: Here, scope: str) -> None:
    sentence = "The token is a service token; a WebSocket needs the token of a user."
    assert await closed_with(f"{here.ws}?token={token('ana', scope)}") == (4403, sentence)


async def test_a_refresh_with_a_service_token_is_refused_and_the_connection_stays(here: Here) -> None:
    async with here.client("ana") as client:
        await client.send("presence.refresh", token=token("ana", "service"), id=1)
        assert (await client.receive("presence.error"))["code"] == "token_of_service"
        await client.send("presence.refresh", token=token("ana"), id=2)
        await client.receive("presence.ok")


async def test_J2_a_websocket_from_a_foreign_origin_is_refused_before_the_upgrade(here: Here) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await closed_with(
            here.ws, origin="https://evil.example", additional_headers={"authorization": f"Bearer {token('ana')}"}
        )
    assert refused.value.response.status_code == 403
    async with here.client("ana", origin=here.url):
        pass


async def test_J3_a_websocket_is_closed_when_its_token_expires(here: Here) -> None:
    short = token("ana", ttl=1.5)
    async with websockets.connect(f"{here.ws}?token={short}") as socket:
        client = Client(socket)
        await client.receive("presence.self")
        assert await client.closed() == (4401, "token_expired")
        client.reader.cancel()


async def test_J3_a_renewed_token_prolongs_a_websocket_and_a_token_of_another_user_is_refused(here: Here) -> None:
    expires = time.time() + 1.5
    short = token("ana", ttl=1.5)
    async with websockets.connect(f"{here.ws}?token={short}") as socket:
        client = Client(socket)
        await client.send("presence.refresh", token=token("bo"), id=1)
        refused = await client.until(lambda frame: frame.get("id") == 1)
        await client.send("presence.refresh", token="rubbish", id=2)
        malformed = await client.until(lambda frame: frame.get("id") == 2)
        await client.send("presence.refresh", token=token("ana"), id=3)
        fine = await client.until(lambda frame: frame.get("id") == 3)
        await asyncio.sleep(max(0, expires + 0.5 - time.time()))  # past the old expiry, by the server's clock
        await client.in_step()
        client.reader.cancel()
    assert (refused["code"], malformed["code"], fine["type"]) == ("token_other_user", "token_malformed", "presence.ok")


# Devices


async def test_C3_two_tabs_are_one_device_and_a_sign_out_in_one_closes_both(here: Here) -> None:
    async with here.client("ana", "?device_id=pc") as first, here.client("ana", "?device_id=pc") as second:
        assert len(second.frames[1]["devices"]) == 1
        await first.send("presence.bye")
        assert await first.closed() == (1000, "signed out")
        assert await second.closed() == (4409, "signed out")


async def test_J1_invalid_user_ids_in_an_unsubscribe_are_refused_and_the_valid_ones_applied(here: Here) -> None:
    async with here.client("ana") as ana:
        await ana.send("presence.unsubscribe", target_user_id="a b", id=1)
        await ana.send("presence.unsubscribe", target_user_ids=["bo", 1.5], id=2)
        await ana.send("presence.unsubscribe", target_user_ids=[], id=3)
        await ana.until(lambda frame: frame.get("id") == 3)
    assert [(f["id"], f.get("code"), f.get("target_user_ids")) for f in ana.frames if "id" in f] == [
        (1, "invalid_user_id", None),
        (2, None, ["bo"]),
        (2, "invalid_user_id", None),
        (3, None, []),
    ]


async def test_a_sign_out_command_with_an_id_is_answered_before_the_websocket_is_closed(here: Here) -> None:
    async with here.client("ana") as ana:
        await ana.send("presence.bye", id="last")
        assert await ana.closed() == (1000, "signed out")
    assert ana.frames[-1] == {"type": "presence.ok", "id": "last"}


async def test_websocket_commands_sent_after_a_sign_out_are_not_executed(here: Here) -> None:
    await here.befriend("ana", "bo")
    with capture_logs() as logs:
        async with here.client("ana") as ana, here.client("ana", "?device_id=other") as other:
            await ana.send("presence.bye", id=1)
            await ana.send("presence.subscribe", target_user_id="bo", id=2)
            await ana.send("presence.set", mode="busy", id=3)
            assert await ana.closed() == (1000, "signed out")
            await other.in_step()
            assert {frame["mode"] for frame in other.frames if frame["type"] == "presence.self"} == {"auto"}
    assert [frame["id"] for frame in ana.frames if "id" in frame] == [1]
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_a_sign_out_during_a_subscribe_writes_no_error_to_the_log(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.befriend("ana", "bo")
    grant = Subscriptions.grant
    subscribed = asyncio.Event()

    async def late(self: Subscriptions, outbox: Outbox, targets: Any, **how: Any) -> Granted:
        await here.put("/presence/devices/pc", "DELETE", headers={"authorization": f"Bearer {token('ana')}"})
        subscribed.set()  # the client may see its close before we continue here
        return await grant(self, outbox, targets, **how)

    monkeypatch.setattr(Subscriptions, "grant", late)
    with capture_logs() as logs:
        async with here.client("ana", "?device_id=pc") as ana:
            await ana.send("presence.subscribe", target_user_id="bo", id=1)
            assert await ana.closed() == (4409, "signed out")
            await subscribed.wait()
            async with here.client("bo") as bo:  # any answer to the subscribe has been sent by then
                await bo.in_step()
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_a_failing_websocket_command_gets_an_error_and_later_commands_are_executed(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Modes, "_choose", broken)
    with capture_logs() as logs:
        async with here.client("ana") as ana:
            await ana.send("presence.set", mode="busy", id=1)
            await ana.send("presence.active", id=2)
            await ana.until(lambda frame: frame.get("id") == 2)
    assert [(f["type"], f.get("code")) for f in ana.frames if "id" in f] == [
        ("presence.error", "internal"),
        ("presence.ok", None),
    ]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["command.failed"]


async def test_C5_a_connection_over_the_limit_per_user_is_closed_with_4429() -> None:
    async with node(max_connections_per_user=2) as here, here.client("ana") as one, here.client("ana") as two:
        headers = {"authorization": f"Bearer {token('ana')}"}
        assert (await closed_with(here.ws, additional_headers=headers))[0] == 4429
        await one.in_step()
        await two.in_step()


async def test_C5_a_session_over_the_limit_per_user_is_closed_with_4429() -> None:
    async with node(max_sessions_per_user=1) as here, here.client("ana", "?device_id=one") as one:
        headers = {"authorization": f"Bearer {token('ana')}"}
        assert (await closed_with(here.ws + "?device_id=two", additional_headers=headers))[0] == 4429
        await one.in_step()


async def test_C6_a_mode_set_on_one_device_reaches_the_users_other_device(here: Here) -> None:
    async with here.client("ana", "?device_id=pc") as pc, here.client("ana", "?device_id=phone") as phone:
        await pc.send("presence.set", mode="invisible")
        own = await phone.until(lambda frame: frame.get("mode") == "invisible")
    assert own["status"] == "online"


async def test_a_websocket_client_that_stops_reading_is_disconnected_without_effect_on_others() -> None:
    async with node(stuck_after=0.3) as here:
        await here.befriend("ana", "bo")
        async with here.client("bo") as bo:
            host, port = here.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=2**10)
            writer.write(
                (
                    f"GET /ws/presence HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                    f"Authorization: Bearer {token('ana')}\r\n\r\n"
                ).encode()
            )
            # Request more than the kernel's buffers hold, and read nothing of it.
            ask = json.dumps({"type": "presence.subscribe", "target_user_id": "ana", "id": "x" * 60}).encode()
            frame = bytes((0x81, 0xFE)) + len(ask).to_bytes(2, "big") + bytes(4) + ask
            async with asyncio.timeout(PATIENCE):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    while True:
                        writer.write(frame * 200)
                        await writer.drain()
            await bo.in_step()
            writer.transport.abort()
