"""The Python SDK against a separate `herenow serve`: connecting, watching, modes, typing, and every kind of end."""

from __future__ import annotations

import asyncio
import gc
import time
from urllib.parse import urlsplit

import pytest
from tests.processes import PATIENCE, SECRET, Server

from herenow.client import Closed, Herenow, ProtocolError, Unavailable, live, mint

pytestmark = pytest.mark.asyncio(loop_scope="module")


def client(server: Server, user: str, device: str | None = None, *, token=None, **options) -> Herenow:
    url = server.url.replace("http", "ws", 1) + "/ws/presence"
    return Herenow(url, token or (lambda: mint(SECRET, user)), device_id=device, **options)


async def until(watch, wanted):
    async with asyncio.timeout(PATIENCE):
        async for each in watch:
            if wanted(each):
                return each
    raise AssertionError("it ended before")


async def sees(here: Herenow, user: str, status: str):
    return (await until(here.watch([user]), lambda c: c.now.status == status and not c.now.stale)).now


async def forgotten(here: Herenow, user: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while here.get(user).status != "unknown":
            await asyncio.sleep(0)


async def restart(server: Server) -> None:
    """Restart at the same address."""
    server._settings["port"] = urlsplit(server.url).port
    await server.start()


async def test_the_python_client_sees_a_watched_user_connect_become_busy_type_and_sign_out(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id, "a1") as ana:
        changes = ana.watch([bo_id])
        assert (await until(changes, lambda c: True)).now.status == "offline"
        async with client(server, bo_id, "b1", platform="mobile") as bo:
            came = await until(changes, lambda c: True)
            assert (came.before.status, came.now.status, came.now.platforms) == ("offline", "online", ("mobile",))
            await bo.set(mode="busy", text="In a meeting", until=int(time.time() * 1000) + 3_600_000)
            busy = await sees(ana, bo_id, "busy")
            assert busy.custom_status.text == "In a meeting"
            with pytest.raises(ProtocolError) as refused:
                await bo.set(text="x" * 101)
            assert refused.value.code == "text_too_long"
            await bo.auto()
            await bo.clear()
            assert (await sees(ana, bo_id, "online")).custom_status is None
            typings = ana.typings()
            first = asyncio.ensure_future(anext(typings))
            await asyncio.sleep(0)
            await bo.typing(to=ana_id)
            assert (await first).typing
            await bo.typing(to=ana_id, typing=False)
            assert not (await anext(typings)).typing
            await bo.bye()
            assert (bo.state.phase, bo.state.code) == ("closed", 1000)
        await sees(ana, bo_id, "offline")


async def test_the_python_client_watches_contacts_and_strangers_and_refuses_invalid_ids(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id) as ana:
        contact = await until(ana.watch_contacts(), lambda c: True)
        assert contact.now.user_id == bo_id
        stranger = await until(ana.watch(["stranger"]), lambda c: True)
        assert (stranger.now.status, stranger.now.denied) == ("offline", "not_mutual_followers")
        with pytest.raises(ProtocolError):
            ana.watch(["no id"])
        await server.befriend(ana_id, "stranger")
        again = await until(ana.watch(["stranger"]), lambda c: c.now.denied is None)
        assert again.now.status == "offline"


async def test_a_slow_reader_of_the_python_client_gets_only_the_latest_change(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id) as ana, client(server, bo_id) as bo:
        slow, quick = ana.watch([bo_id]), ana.watch([bo_id])
        await until(quick, lambda c: c.now.status == "online")
        first = await until(slow, lambda c: c.now.status == "online")
        for mode in ("busy", "away", "busy"):
            await bo.set(mode=mode)
            await until(quick, lambda c, mode=mode: c.now.status == mode)
        latest = await until(slow, lambda c: True)
        assert (latest.before, latest.now.status) == (first.now, "busy")


async def test_the_python_client_unsubscribes_users_whom_no_reader_watches_any_more(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id) as ana:
        async with ana.watch([bo_id]) as watch:
            await until(watch, lambda c: True)
        await forgotten(ana, bo_id)
        await until(ana.watch([bo_id]), lambda c: True)
        await asyncio.to_thread(gc.collect)  # in whichever thread it happens
        await forgotten(ana, bo_id)
        assert [change async for change in watch] == []


async def test_the_python_client_renews_its_token_before_it_expires(server, people):
    ana_id, bo_id = people
    asked = []

    async def fresh() -> str:
        asked.append(mint(SECRET, bo_id, ttl=6))
        return asked[-1]

    async with client(server, bo_id, "b1", token=fresh) as bo:
        await bo.connected()
        phases = asyncio.ensure_future(_all(bo.states()))
        await asyncio.sleep(7)  # the server checks expiry by its own clock
        await bo.auto()
    assert len(asked) > 1
    assert [state.phase for state in await phases] == ["connected", "closed"]


async def test_the_python_client_replaces_an_expired_token_after_close_code_4401(server, people):
    ana_id, bo_id = people
    tokens = [mint(SECRET, bo_id, ttl=4)]
    async with client(server, bo_id, "b1", token=lambda: tokens[-1]) as bo:
        gone = await until(bo.states(), lambda s: s.phase == "reconnecting")
        assert gone.code == 4401
        tokens.append(mint(SECRET, bo_id))
        await bo.connected()


async def test_a_refused_token_closes_the_python_client(server, people):
    ana_id, bo_id = people
    async with client(server, bo_id, token=mint("another secret, that is long enough", bo_id)) as bo:
        with pytest.raises(Closed) as closed:
            await until(bo.watch([ana_id]), lambda c: True)
        assert closed.value.code == 4401
        with pytest.raises(Closed):
            await bo.set(mode="busy")
        with pytest.raises(Closed):
            await bo.connected()


async def test_a_token_function_that_returns_none_closes_the_python_client(server, people):
    ana_id, bo_id = people
    async with client(server, bo_id, token=lambda: None) as bo:
        with pytest.raises(Closed, match="signed_out"):
            await bo.connected()


async def test_a_sign_out_of_its_device_by_rest_closes_the_python_client(server, people):
    ana_id, bo_id = people
    async with client(server, bo_id, "b1") as bo:
        await bo.connected()
        await server.rest("DELETE", "/presence/devices/b1", bo_id, service=False)
        with pytest.raises(Closed) as closed:
            await until(bo.states(), lambda s: False)
        assert closed.value.code == 4409


async def test_the_python_client_reconnects_after_the_server_was_killed(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id, "a1") as ana, client(server, bo_id, "b1") as bo:
        changes = ana.watch([bo_id])
        await until(changes, lambda c: c.now.status == "online")
        await server.kill()
        lost = await until(changes, lambda c: True)
        assert (lost.now.status, lost.now.stale) == ("online", True)
        await restart(server)
        await sees(ana, bo_id, "online")
        await bo.set(mode="busy")
        await sees(ana, bo_id, "busy")


async def test_the_python_client_reconnects_at_the_time_that_a_stopping_server_gave(server, people):
    ana_id, bo_id = people
    async with client(server, ana_id) as ana:
        await ana.connected()
        states = ana.states()
        await anext(states)
        await server.stop()
        gone = await until(states, lambda s: s.phase == "reconnecting")
        assert gone.code == 1012
        assert gone.retry_in >= int(gone.reason.partition("retry_after_ms=")[2]) / 1000
        await restart(server)
        await ana.connected()


async def test_the_python_client_reports_a_failing_token_function_and_calls_it_again(server, people):
    ana_id, bo_id = people
    fails = [True]

    def source() -> str:
        if fails:
            raise RuntimeError("the back end is away")
        return mint(SECRET, bo_id)

    async with client(server, bo_id, token=source) as bo:
        waiting = await until(bo.states(), lambda s: s.phase == "reconnecting")
        assert waiting.reason == "token_failed"
        assert bo.errors[0].code == "token_failed"
        fails.clear()
        await bo.connected()


async def test_leaving_the_python_client_ends_every_reader_without_an_error(server, people):
    ana_id, bo_id = people
    here = client(server, ana_id)
    async with here:
        await here.connected()
        reading = asyncio.ensure_future(_all(here.watch([bo_id])))
        phases = asyncio.ensure_future(_all(here.states()))
        await asyncio.sleep(0)
    assert {state.phase for state in await phases} <= {"connected", "closed"}
    await reading
    assert [change async for change in here.watch([ana_id])] == []


async def _all(iterator):
    return [each async for each in iterator]


async def test_an_invalid_server_address_closes_the_python_client():
    async with Herenow("mailto:ana", lambda: mint(SECRET, "ana")) as here:
        with pytest.raises(Closed):
            await here.connected()


async def test_setting_a_mode_in_the_python_client_without_a_connection_raises_unavailable_after_a_timeout(
    unused_tcp_port, monkeypatch
):
    monkeypatch.setattr(live, "ANSWER", 0.2)
    async with Herenow(f"ws://127.0.0.1:{unused_tcp_port}/", lambda: mint(SECRET, "ana")) as here:
        with pytest.raises(Unavailable):
            await here.set(mode="busy")


async def test_the_python_client_retries_an_unreachable_server_without_an_exception(unused_tcp_port):
    async with Herenow(f"ws://127.0.0.1:{unused_tcp_port}/ws/presence", lambda: mint(SECRET, "ana")) as here:
        waiting = await until(here.states(), lambda s: s.phase == "reconnecting")
        assert waiting.retry_in >= 0.1
