"""Tokens from an application's endpoint, which is a real HTTP server and fails in all ways, and from functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
import websockets
from tests.client.endpoint import HANG, HTML, RESET, Endpoint
from tests.client.test_link import client, hear, play
from tests.processes import PATIENCE, SECRET

from herenow.client import Closed, Herenow, State, backoff, link, mint, token_source

pytestmark = pytest.mark.asyncio

FAILURES = {
    "500": (500, "Internal Server Error"),
    "a proxy's HTML with 502": (502, HTML),
    "a proxy's HTML with 200": (200, HTML),
    "an empty 200": (200, ""),
    "404": (404, "not found"),
    "403": (403, '{"detail":"forbidden"}'),
    "JSON without a token": (200, '{"token":null}'),
    "a broken connection": RESET,
    "silence": HANG,
}
failing = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    """Retries after 1 ms instead of 1 s, and a renewal as soon as the connection is open."""
    monkeypatch.setattr(backoff, "TOKEN_FIRST", 1)
    monkeypatch.setattr(backoff, "FIRST", 1)
    monkeypatch.setattr(backoff, "FLOOR", 1)
    monkeypatch.setattr(link, "renewal_delay", lambda left: 0.01)


def good(ttl: float = 3600) -> tuple[int, str]:
    return 200, mint(SECRET, "ana", ttl=ttl)


async def stay(socket: websockets.ServerConnection, number: int) -> None:
    await socket.wait_closed()


async def states_until(here: Herenow, holds: Callable[[State], bool]) -> list[State]:
    seen: list[State] = []
    async for state in here.states():
        seen.append(state)
        if holds(state):
            break
    return seen


@failing
async def test_the_python_client_asks_a_failing_token_endpoint_again_until_it_gives_a_token(failure, monkeypatch):
    if failure == HANG:
        monkeypatch.setattr(token_source, "ANSWER", 0.2)
    waits = []
    async with Endpoint([failure] * 3 + [good()]) as app, await play(stay) as server, asyncio.timeout(PATIENCE):
        here = client(server, app.url)
        told = here.state_is

        def note(state: State) -> None:
            if state.phase == "reconnecting":
                waits.append((state.reason, state.retry_in))
            told(state)

        monkeypatch.setattr(here, "state_is", note)
        async with here:
            await here.connected()
    assert waits == [("token_failed", 0.001), ("token_failed", 0.002), ("token_failed", 0.004)]
    assert [error.code for error in here.errors[:3]] == ["token_failed"] * 3


@failing
async def test_a_token_endpoint_that_fails_at_a_renewal_leaves_the_connection_open(failure, monkeypatch):
    if failure == HANG:
        monkeypatch.setattr(token_source, "ANSWER", 0.2)
    refreshed: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        assert number == 1
        refreshed.set_result(await hear(socket, "presence.refresh"))
        await socket.wait_closed()

    fresh = good(ttl=7200)
    async with Endpoint([good(), failure, failure, fresh]) as app, await play(part) as server:
        async with client(server, app.url) as here, asyncio.timeout(PATIENCE):
            assert (await refreshed)["token"] == fresh[1]
            assert here.state.phase == "connected"
            assert [error.code for error in here.errors] == ["token_failed"] * 2


async def test_a_token_that_expires_while_its_endpoint_fails_ends_the_websocket_but_not_the_python_client():
    async def part(socket: websockets.ServerConnection, number: int) -> None:
        if number == 1:
            while len(app.paths) < 4:
                await asyncio.sleep(0.01)
            await socket.close(4401, "token_expired")
        await socket.wait_closed()

    async with Endpoint([good(), (500, HTML)]) as app, await play(part) as server, asyncio.timeout(PATIENCE):
        async with client(server, app.url) as here:
            seen = await states_until(here, lambda state: state.reason == "token_failed" and len(app.paths) > 8)
            assert {state.phase for state in seen} <= {"connecting", "connected", "reconnecting"}
            app.answers = [good(ttl=7200)]
            await here.connected()


@pytest.mark.parametrize("status", [204, 401])
async def test_a_token_endpoint_that_knows_no_signed_in_user_leaves_the_python_client_signed_out(status):
    async with Endpoint([(status, "")]) as app, await play(stay) as server, asyncio.timeout(PATIENCE):
        async with client(server, app.url) as here:
            with pytest.raises(Closed, match="signed_out"):
                await here.connected()
            assert here.state == State("signed_out")
            with pytest.raises(Closed, match="signed_out"):
                await here.set(mode="busy")
            with pytest.raises(Closed, match="signed_out"):
                await anext(here.watch(["bo"]))
        assert here.state == State("signed_out")
        assert here.errors == []
        assert len(app.paths) == 1


@pytest.mark.parametrize("status", [204, 401])
async def test_a_token_endpoint_that_reports_a_sign_out_at_a_renewal_ends_the_connection(status):
    connections = []

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        connections.append(number)
        await socket.wait_closed()

    async with Endpoint([good(), (status, "")]) as app, await play(part) as server, asyncio.timeout(PATIENCE):
        async with client(server, app.url) as here:
            with pytest.raises(Closed, match="signed_out"):
                async for _ in here.watch(["bo"]):
                    pass
            assert here.state == State("signed_out")
            assert here.errors == []
        assert len(app.paths) == 2
    assert connections == [1]


@pytest.mark.parametrize(
    "wrap", [lambda jwt: f"{jwt}\n", lambda jwt: json.dumps({"token": jwt, "more": 1}), json.dumps]
)
async def test_a_token_endpoint_may_answer_with_text_or_json(wrap):
    token = good()[1]
    async with Endpoint([(200, wrap(token))]) as app, asyncio.timeout(PATIENCE):
        assert await token_source.request_token(app.url) == token


async def test_a_token_argument_of_the_python_client_that_is_no_url_is_used_as_the_token():
    assert await token_source.request_token("not checked") == "not checked"
    assert await token_source.request_token("") is None


async def never() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("wrong", [lambda: HTML, lambda: 7, lambda: {"token": "x"}, lambda: 1 / 0, never])
async def test_a_token_function_that_fails_at_a_renewal_leaves_the_connection_open(wrong, monkeypatch):
    monkeypatch.setattr(token_source, "ANSWER", 0.2)
    refreshed: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
    asked = 0

    def source() -> str | None:
        nonlocal asked
        asked += 1
        return wrong() if asked in (2, 3) else mint(SECRET, "ana", ttl=3600 + asked)

    async def part(socket: websockets.ServerConnection, number: int) -> None:
        refreshed.set_result(await hear(socket, "presence.refresh"))
        await socket.wait_closed()

    async with await play(part) as server, client(server, source) as here, asyncio.timeout(PATIENCE):
        assert (await refreshed)["token"]
        assert here.state.phase == "connected"
        assert [error.code for error in here.errors] == ["token_failed"] * 2


async def test_the_error_about_a_token_endpoint_shows_neither_password_nor_query_of_its_url():
    async with Endpoint([(500, "")]) as app, asyncio.timeout(PATIENCE):
        secret = app.url.replace("//", "//bot:hidden@") + "?key=hidden"
        with pytest.raises(token_source.TokenError, match="/presence-token answered 500") as raised:
            await token_source.request_token(secret)
        assert "hidden" not in str(raised.value)
        assert app.paths == ["/presence-token?key=hidden"]


async def test_the_state_of_the_python_client_has_a_reason_while_it_reconnects(unused_tcp_port):
    async def part(socket: websockets.ServerConnection, number: int) -> None:
        socket.transport.abort()

    async with asyncio.timeout(PATIENCE):
        async with await play(part) as server, client(server) as here:
            seen = await states_until(here, lambda state: state.phase == "reconnecting")
            assert seen[-1].reason == "connection_lost"
        async with Herenow(f"ws://127.0.0.1:{unused_tcp_port}/", lambda: mint(SECRET, "ana")) as here:
            seen = await states_until(here, lambda state: state.phase == "reconnecting")
            assert seen[-1].reason.startswith("unreachable: ConnectionRefusedError")
