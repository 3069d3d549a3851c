"""REST, blocking and not, against a separate `herenow serve`; and that the two clients are one."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.processes import SECRET

from herenow.client import AsyncRest, ProtocolError, Rest, RestError, Unavailable, mint
from herenow.client.asks import Beat, Relation
from herenow.gateway.tokens import verify

HOUR = 3_600_000
in_one_loop = pytest.mark.asyncio(loop_scope="module")


def now() -> int:
    return int(time.time() * 1000)


@in_one_loop
async def test_the_whole_interface(server):
    await asyncio.to_thread(_whole_interface, server.url)


def _whole_interface(url: str) -> None:
    with (
        Rest(url, mint(SECRET, "backend", service=True)) as backend,
        Rest(url, lambda: mint(SECRET, "ana")) as ana,
        Rest(url + "/", mint(SECRET, "bo")) as bo,
    ):
        backend.follow("ana", "bo")
        assert backend.follows("ana", "bo")
        assert not backend.follows("bo", "ana")
        backend.follow("bo", "ana")
        assert bo.get("ana").status == "offline"
        assert ana.heartbeat("phone", platform="mobile", activity="active").device_id == "phone"
        assert bo.get("ana").platforms == ("mobile",)
        assert [each.user_id for each in bo.get_many(["ana", "bo", "ana"])] == ["ana", "bo"]
        assert backend.get("ana", viewer="stranger").status == "offline"

        assert ana.set_mode("busy", until=datetime.now(UTC) + timedelta(hours=1)).mode == "busy"
        custom = ana.set_status("Lunch", emoji="🍜", until=now() + HOUR)
        assert custom is not None
        assert custom.text == "Lunch"
        assert bo.get("ana").status == "busy"
        backend.set_mode("auto", user="ana")
        backend.clear_status(user="ana")
        assert (ana.me().mode, ana.me().custom_status) == ("auto", None)
        backend.set_status("In a call", user="ana")
        ana.clear_status()

        assert ana.set_preferences(idle_after=60)["idle_after"] == 60
        assert ana.preferences()["idle_after"] == 60
        assert bo.count().online == 1
        assert [each.user_id for each in bo.leaderboard(limit=5)] == ["ana"]
        assert [device.device_id for device in ana.devices()] == ["phone"]
        ana.sign_out("phone")
        assert bo.get("ana").status == "offline"

        backend.add_contact("ana", "chen", until=now() + HOUR)
        assert backend.in_contact("chen", "ana")
        backend.remove_contact("ana", "chen")
        assert not backend.in_contact("ana", "chen")
        backend.add_member("a/b", "ana")
        assert backend.is_member("a/b", "ana")
        backend.remove_member("a/b", "ana")
        assert not backend.is_member("a/b", "ana")
        backend.unfollow("ana", "bo")
        assert backend.import_relations([Relation("follow", "ana", "bo"), Relation("follow", 1, 2)]).rows == 2

        batch = backend.heartbeats([Beat("bo", "watch"), Beat("a b", "x"), Beat("bo", "watch", gone=True)])
        assert (batch.accepted + batch.dropped, batch.errors[0].index) == (2, 1)
        assert backend.stats()["ready"] is True

        with pytest.raises(RestError) as refused:
            ana.follow("ana", "bo")
        assert (refused.value.code, refused.value.status) == ("forbidden", 403)
        with pytest.raises(RestError) as missing:
            ana.sign_out("no such device")
        assert missing.value.code in ("device_unknown", "invalid_id")
        with pytest.raises(ValueError, match="zone"):
            ana.set_mode("busy", until=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake that is tested


@in_one_loop
async def test_the_same_without_blocking(server):

    async def token() -> str:
        return mint(SECRET, "backend", service=True)

    async with AsyncRest(server.url, token) as backend, AsyncRest(server.url, mint(SECRET, "ana")) as ana:
        await backend.follow("ana", "bo")
        await backend.follow("bo", "ana")
        assert await backend.follows("ana", "bo")
        await ana.heartbeat("phone")
        assert (await backend.get("ana")).status == "online"
        assert (await backend.get("ana", viewer="bo")).status == "online"
        assert [d.device_id for d in await ana.devices()] == ["phone"]
        assert [each.user_id for each in await ana.leaderboard()] == ["bo"]
        custom = await ana.set_status("Lunch")
        assert custom is not None
        assert not await backend.is_member("lobby", "ana")
        with pytest.raises(RestError):
            await ana.heartbeats([])


def test_a_server_that_is_not_there_is_unavailable(unused_tcp_port):
    with Rest(f"http://127.0.0.1:{unused_tcp_port}", "token") as rest, pytest.raises(Unavailable):
        rest.get("ana")


def test_both_clients_have_the_same_methods():
    def methods(kind: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(method)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Rest) == methods(AsyncRest)


def test_a_minted_token_is_what_the_server_takes():
    claims = verify(
        mint(SECRET, 42, service=True, ttl=timedelta(hours=2)), SECRET, now=time.time(), max_ttl=86_400
    )
    assert (claims.user, claims.is_service) == ("42", True)
    with pytest.raises(ProtocolError):
        mint(SECRET, "no id")


def test_importing_the_client_loads_nothing_of_the_server():
    code = "import sys, herenow.client; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"starlette", "uvicorn", "sqlalchemy", "picows", "alembic", "pydantic", "click"} & set(loaded)
