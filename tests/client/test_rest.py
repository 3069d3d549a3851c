"""The REST clients, blocking and async, against a separate `herenow serve`; both have the same methods."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import assert_type

import httpx2
import pytest
from tests.processes import SECRET

from herenow.client import (
    AsyncRest,
    Beat,
    Preferences,
    Presence,
    ProtocolError,
    Relation,
    Rest,
    RestError,
    Unavailable,
    UserPage,
    mint,
)
from herenow.client.rest.calls import RestCalls
from herenow.transport.auth import verify

HOUR = 3_600_000
in_one_loop = pytest.mark.asyncio(loop_scope="module")


def now() -> int:
    return int(time.time() * 1000)


@in_one_loop
async def test_the_python_rest_client_reads_and_sets_presence_modes_devices_and_relations(server):
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
        assert isinstance(bo.get("ana"), Presence)
        assert ana.heartbeat("phone", platform="mobile", activity="active").device_id == "phone"
        assert bo.get("ana").platforms == ("mobile",)
        assert [each.user_id for each in bo.get_many(["ana", "bo", "ana"])] == ["ana", "bo"]
        assert backend.get("ana", viewer="stranger").status == "offline"

        assert ana.set_mode("busy", until=datetime.now(UTC) + timedelta(hours=1)).mode == "busy"
        custom = ana.set_status("Lunch", emoji="🍜", until=now() + HOUR)
        assert custom is not None
        assert custom.text == "Lunch"
        assert bo.get("ana").status == "busy"
        assert backend.set_mode("away", user="ana", source="call").mode == "away"
        backend.set_status("In a call", user="ana", source="call")
        assert (ana.me().mode, ana.me().mode_source, ana.me().custom_source) == ("busy", "user", "user")
        ana.set_mode("auto")
        ana.clear_status()
        assert (ana.me().mode, ana.me().mode_source, ana.me().custom_source) == ("away", "call", "call")
        backend.set_mode("auto", user="ana", source="call")
        backend.clear_status(user="ana", source="call")
        assert (ana.me().mode, ana.me().mode_source, ana.me().custom_status) == ("auto", None, None)
        backend.set_status("In a call", user="ana")
        backend.clear_status(user="ana")

        assert ana.set_preferences(idle_after=60).idle_after == 60
        assert ana.preferences().idle_after == 60
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
async def test_the_python_rest_client_edits_relations_blocks_and_preferences(server):
    await asyncio.to_thread(_who_may_see_whom, server.url)


def _who_may_see_whom(url: str) -> None:
    with (
        Rest(url, mint(SECRET, "backend", service=True)) as backend,
        Rest(url, lambda: mint(SECRET, "eva")) as eva,
        Rest(url, lambda: mint(SECRET, "finn")) as finn,
    ):
        backend.import_relations([Relation("follow", "eva", "finn"), Relation("follow", "finn", "eva")])
        eva.heartbeat("phone", activity="active")
        assert finn.get("eva").status == "online"
        assert backend.explain("finn", "eva").rule == "contacts"

        eva.block("finn")
        assert (eva.blocks(), eva.is_blocked("finn"), finn.blocks()) == (["finn"], True, [])
        assert backend.blocks(viewer="eva") == ["finn"]
        assert finn.get("eva").status == "offline"
        why = backend.explain("finn", "eva")
        assert (why.rule, why.sight, why.shown.status) == ("blocked", "offline", "offline")
        assert (why.truth["status"], why.facts["blocked"]) == ("online", True)
        eva.unblock("finn")
        assert not eva.is_blocked("finn")
        assert finn.get("eva").status == "online"
        with pytest.raises(RestError) as oneself:
            eva.block("eva")
        assert oneself.value.code == "blocking_oneself"

        assert eva.public_profile("eva") is None
        assert eva.set_preferences(public=True, visibility="nobody", share_last_seen=False).public
        assert eva.preferences().visibility == "nobody"
        assert backend.preferences(viewer="eva").share_last_seen is False
        assert finn.get("eva").status == "offline"
        eva.set_preferences(visibility="everyone")
        profile = finn.public_profile("eva")
        assert profile is not None
        assert profile.status == "online"
        with pytest.raises(RestError) as unheard_of:
            eva.set_preferences(visibility="friends of friends")
        assert unheard_of.value.code == "invalid_visibility"


@in_one_loop
async def test_the_python_rest_client_disconnects_revokes_and_deletes_a_user(server):
    await asyncio.to_thread(_what_is_done_to_a_user, server.url)


def _what_is_done_to_a_user(url: str) -> None:
    with (
        Rest(url, mint(SECRET, "backend", service=True)) as backend,
        Rest(url, mint(SECRET, "gus", ttl=600, now=time.time() - 60)) as gus,
    ):
        gus.heartbeat("phone", activity="active")
        gus.heartbeat("laptop")
        assert "gus" in _everybody(backend, "online")
        assert "gus" not in _everybody(backend, "busy")
        backend.disconnect("gus", device="phone")
        assert [device.device_id for device in gus.devices()] == ["laptop"]
        backend.disconnect("gus")
        assert backend.get("gus").status == "offline"
        assert backend.revoke("gus", issued_before=now() - 30_000).user_id == "gus"
        with pytest.raises(RestError) as void:
            gus.me()
        assert (void.value.code, void.value.status) == ("token_revoked", 401)
        backend.delete_user("gus")
        assert backend.get("gus").last_seen is None
        backend.relations_changed(pairs=[("ana", "bo")], users=["ana"], rooms=["lobby"])


def _everybody(backend: Rest, status: str) -> list[str]:
    found: list[str] = []
    page = backend.users(status=status, limit=1)
    while True:
        found += [each.user_id for each in page.users]
        if page.cursor is None:
            return found
        page = backend.users(status=status, limit=1, cursor=page.cursor)


@in_one_loop
async def test_the_async_python_rest_client_works_like_the_blocking_one(server):

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
        await ana.block("bo")
        assert await ana.blocks() == ["bo"]
        assert (await backend.explain("bo", "ana")).rule == "blocked"
        await ana.unblock("bo")
        assert (await ana.preferences()).visibility == "contacts"
        assert await ana.public_profile("bo") is None
        assert "ana" in [each.user_id for each in (await backend.users(limit=1000)).users]


def test_an_error_about_too_frequent_polling_has_the_retry_after_of_the_server():
    problem = b'{"code":"polling_too_fast","detail":"Bulk reads are limited."}'
    with pytest.raises(RestError) as refused:
        RestCalls().get_many(["ana"]).answer(429, problem, {"retry-after": "30"})
    assert (refused.value.code, refused.value.status, refused.value.retry_after) == ("polling_too_fast", 429, 30.0)


@pytest.mark.parametrize(("status", "code"), [(502, "http_502"), (302, "http_302")])
def test_the_python_rest_client_turns_an_error_page_of_a_proxy_into_a_rest_error_with_a_code(status, code):
    with pytest.raises(RestError) as refused:
        RestCalls().me().answer(status, b"<html>", {})
    assert refused.value.code == code


def test_the_python_rest_client_raises_unavailable_on_an_html_answer_of_a_foreign_server():
    with pytest.raises(Unavailable):
        RestCalls().me().answer(200, b"<html>sign in to this network</html>", {})


def test_the_python_rest_client_leaves_an_http_client_passed_by_the_caller_open():
    with httpx2.Client() as http:
        with Rest("http://127.0.0.1:9", "token", http=http):
            pass
        assert not http.is_closed


def test_the_python_rest_client_raises_unavailable_if_the_server_is_unreachable(unused_tcp_port):
    with Rest(f"http://127.0.0.1:{unused_tcp_port}", "token") as rest, pytest.raises(Unavailable):
        rest.get("ana")


def test_the_async_and_the_blocking_python_rest_client_have_the_same_methods():
    def methods(kind: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(method)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Rest) == methods(AsyncRest)


async def _types_of_both_clients(rest: Rest, other: AsyncRest) -> None:
    """Checked by mypy and not run: arguments and results are typed."""
    assert_type(rest.get("ana", viewer=1), Presence)
    assert_type(await other.get("ana", viewer=1), Presence)
    assert_type(rest.users(limit=1), UserPage)
    assert_type(await other.public_profile("ana"), Presence | None)
    assert_type(rest.follows("ana", "bo"), bool)
    assert_type(await other.set_preferences(public=True), Preferences)
    rest.get(1.5)  # type: ignore[arg-type]
    rest.follow("ana")  # type: ignore[call-arg]
    await other.follow("ana", "bo", until=1)  # type: ignore[call-arg]


def test_methods_of_the_python_rest_clients_have_docstrings_and_return_types():
    assert inspect.iscoroutinefunction(AsyncRest.get_many)
    assert not inspect.iscoroutinefunction(Rest.get_many)
    for client in (Rest, AsyncRest):
        assert client.get_many.__doc__ == "The presences of many users, in the given order, without duplicates."
        assert inspect.signature(client.get_many).return_annotation == "list[Presence]"


def test_a_token_minted_by_the_python_client_is_accepted_by_the_server():
    claims = verify(mint(SECRET, 42, service=True, ttl=timedelta(hours=2)), (SECRET,), now=time.time(), max_ttl=86_400)
    assert (claims.user, claims.is_service) == ("42", True)
    for scope in ("read beats", ["read", "beats"]):
        token = mint(SECRET, "backend", scope=scope)
        assert verify(token, (SECRET,), now=time.time(), max_ttl=86_400).scope == "read beats"
    with pytest.raises(ValueError, match="there is no scope 'root'"):
        mint(SECRET, "backend", scope="read root")
    with pytest.raises(ProtocolError):
        mint(SECRET, "no id")


def test_importing_the_python_client_loads_no_library_of_the_server():
    code = "import sys, herenow.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"starlette", "uvicorn", "sqlalchemy", "picows", "alembic", "pydantic", "click"} & set(loaded)
