"""The file of an SQLite ledger is deleted or replaced under a running server."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing

import httpx2
import pytest
from tests.processes import PATIENCE, Server, token

NOTICED = 2.0
"""Seconds."""

WRITES = (
    ("PUT", "/blocks/bo", None),
    ("DELETE", "/blocks/bo", None),
    ("PUT", "/follows/ana/cy", None),
    ("PUT", "/presence/preferences", {"visibility": "nobody"}),
    ("POST", "/users/cy/revoke", {}),
)
"""Requests that need the ledger."""


async def troubles(server: Server) -> dict[str, str]:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.get(server.url + "/readyz")
    assert answer.status_code == 200
    return {trouble["what"]: trouble["detail"] for trouble in answer.json()["degraded"]}


async def status_of(server: Server, method: str, path: str, body: object) -> int:
    headers = {"authorization": f"Bearer {token('ana', 'service')}"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.request(method, server.url + "/api/v1" + path, headers=headers, json=body)
    return answer.status_code


async def named_within(server: Server, seconds: float) -> str:
    """The sentence with which `/readyz` names the ledger."""
    started = time.monotonic()
    while "ledger" not in (found := await troubles(server)):
        assert time.monotonic() - started < seconds
        await asyncio.sleep(0.1)
    return found["ledger"]


async def until_well(server: Server) -> None:
    async with asyncio.timeout(PATIENCE):
        while await troubles(server):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_j9_readyz_reports_a_deleted_sqlite_file_within_two_seconds_and_writes_are_refused(
    start_server, how: str
) -> None:
    server = await start_server(ledger="sqlite:///herenow.db")
    await server.befriend("ana", "bo")
    async with server.client("ana") as ana, server.client("bo") as bo:
        await ana.watch("bo")
        assert await troubles(server) == {}
        server.ledger.rename(server.folder / "aside.db")
        if how == "replaced":
            with closing(sqlite3.connect(server.ledger)) as other:
                other.execute("CREATE TABLE something (value)")
        said = await named_within(server, NOTICED)
        assert "move the same file back" in said
        assert str(server.folder) not in said
        for method, path, body in WRITES:
            assert await status_of(server, method, path, body) == 503, path
        await bo.send("presence.set", mode="busy", id="kept")
        await bo.receive("presence.ok")
        await ana.sees("bo", "busy")
        assert server.ledger.exists() == (how == "replaced")
        (server.folder / "aside.db").rename(server.ledger)
        await until_well(server)
        assert await status_of(server, "PUT", "/blocks/cy", None) == 204
    assert await server.stop() == 0
    with closing(sqlite3.connect(server.ledger)) as ledger:
        assert ledger.execute("SELECT user FROM choices").fetchall() == [("bo",)]
        assert ledger.execute("SELECT blocker, blocked FROM blocks").fetchall() == [("ana", "cy")]
