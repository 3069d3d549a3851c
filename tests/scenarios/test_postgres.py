"""A node on a PostgreSQL ledger that is killed, frozen or cut off: presence works, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import httpx2
import pytest
from tests.processes import PATIENCE, token

pytestmark = pytest.mark.xdist_group("postgres in trouble")

PEOPLE = 30


async def facts(postgres, url, what):
    return dict(await postgres.sql(what, url.rpartition("/")[2]))


async def last_seen(postgres, url):
    return await facts(postgres, url, 'SELECT "user", at FROM herenow.last_seen')


async def readiness(server):
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.get(server.url + "/readyz")
    assert answer.status_code == 200
    return {trouble["what"]: trouble["detail"] for trouble in answer.json()["degraded"]}


async def status_of(server, method, path, user):
    headers = {"authorization": f"Bearer {token(user)}"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.request(method, server.url + "/api/v1" + path, headers=headers)
    return answer.status_code


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_H4_last_seen_times_of_a_postgresql_outage_are_written_when_the_database_returns(
    start_server, fragile_postgres, fragile_url
):
    server = await start_server(ledger=fragile_url, grace=0.2)
    async with AsyncExitStack() as here:
        clients = [await here.enter_async_context(server.client(f"user-{n}")) for n in range(PEOPLE)]
        await clients[0].send("presence.set", mode="busy", id="chosen")
        await clients[0].receive("presence.ok")
        fragile_postgres.kill()
        await clients[1].send("presence.set", mode="away", id="away")
        await clients[1].receive("presence.ok")  # accepted, kept, written later
    await until(lambda: _is_late(server))
    stats = await server.rest("GET", "/stats")
    assert stats["ledger_backlog"] > 0
    fragile_postgres.start()
    await until(lambda: _has(last_seen(fragile_postgres, fragile_url), PEOPLE))
    chosen = await facts(fragile_postgres, fragile_url, 'SELECT "user", mode FROM herenow.choices')
    assert set(chosen) == {"user-0", "user-1"}
    await until(lambda: _is_well(server))


async def _is_late(server):
    return "ledger_backlog" in await readiness(server)


async def _is_well(server):
    return await readiness(server) == {}


async def _has(rows, count):
    return len(await rows) == count


@pytest.mark.parametrize("how", ["frozen", "stopped"])
async def test_during_a_postgresql_outage_presence_works_and_requests_that_need_the_database_get_503(
    start_server, fragile_postgres, fragile_url, how
):
    server = await start_server(ledger=fragile_url.replace("postgres@", "postgres:hunter2@"), grace=0.2)
    await server.befriend("ana", "bo", "cy")
    async with server.client("ana") as ana, server.client("cy"):
        await ana.watch("bo")
        async with server.client("bo") as bo:
            await ana.sees("bo", "online")
            (fragile_postgres.freeze if how == "frozen" else fragile_postgres.stop)()
            await bo.send("presence.set", mode="busy")
            await ana.sees("bo", "busy")
            shown = await ana.watch("cy")  # a pair that was not asked before
            assert (shown["status"], shown["last_seen"]) == ("offline", None)
            assert await status_of(server, "PUT", "/blocks/bo", "ana") == 503
            await until(lambda: _names(server, "ledger"))
        await ana.sees("bo", "offline")
        (fragile_postgres.thaw if how == "frozen" else fragile_postgres.start)()
        await ana.sees("cy", "online")
        await until(lambda: _is_well(server))
        assert await status_of(server, "PUT", "/blocks/bo", "ana") in (200, 204)
    await until(lambda: _is_in("bo", last_seen(fragile_postgres, fragile_url)))
    log = (server.folder / "log").read_text()
    assert "ledger.refuses" in log
    assert "hunter2" not in log


async def _names(server, what):
    return what in await readiness(server)


async def _is_in(user, rows):
    return user in await rows


async def test_after_kill_9_of_node_and_postgresql_every_connected_user_has_a_recent_last_seen(
    start_server, fragile_postgres, fragile_url
):
    server = await start_server(ledger=fragile_url)
    async with AsyncExitStack() as here:
        for number in range(PEOPLE):
            await here.enter_async_context(server.client(f"user-{number}"))
        marks = 'SELECT "user", run FROM herenow.open_marks'
        await until(lambda: _has(facts(fragile_postgres, fragile_url, marks), PEOPLE))
        [(stamp,)] = await fragile_postgres.sql("SELECT at FROM herenow.runs", fragile_url.rpartition("/")[2])
        fragile_postgres.kill()
        await server.kill()
    fragile_postgres.start()
    await server.start()
    seen = await last_seen(fragile_postgres, fragile_url)
    assert len(seen) == PEOPLE
    assert all(at >= stamp for at in seen.values())


async def test_modes_set_by_two_devices_at_once_end_equal_in_the_node_and_in_postgresql(
    start_server, postgres_server, postgres_url
):
    server = await start_server(ledger=postgres_url)
    random.seed(7)
    async with server.client("ana", "phone") as phone, server.client("ana", "laptop") as laptop:
        for number in range(40):
            for device in (phone, laptop):
                mode = random.choice(["auto", "busy", "away", "invisible"])
                await device.send("presence.set", mode=mode, id=f"{number}")
        for device in (phone, laptop):
            await device.until(lambda frame: frame.get("id") == "39")
        own = await server.rest("GET", "/presence/me", "ana", service=False)
    modes = {0: "auto", 1: "busy", 2: "away", 3: "invisible"}
    chosen = 'SELECT "user", mode FROM herenow.choices'

    async def equal():
        return modes[(await facts(postgres_server, postgres_url, chosen))["ana"]] == own["mode"]

    await until(equal)
    assert await server.stop() == 0
    assert await equal()
