"""Scopes, the audit log and the replacement of a secret, as the page says, on a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from contextlib import suppress

import pytest
import websockets
from tests.docs.reader import Reader, needs
from tests.docs.snippets import runs
from tests.processes import PATIENCE, Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "docs/tokens-and-secrets.md"


@runs(PAGE)
async def test_the_commands_of_the_guide_to_service_tokens_and_secrets_do_what_it_says(follow, snippets):
    needs("openssl")
    reader: Reader = follow(8000, HERENOW_PORT="0", HERENOW_DEAD_AFTER="600")
    reader.environment["HERENOW_PORT"] = str(reader.ports[8000])
    terminal = reader.terminal()
    try:
        await followed(reader, terminal, snippets)
    finally:
        with suppress(OSError):
            os.kill(int((reader.folder / "herenow.pid").read_text()), signal.SIGKILL)


async def followed(reader, terminal, snippets):
    assert json.loads(await terminal.run(snippets["serve"]))["status"] == "ready"
    users, beats = re.findall(r"{.*?}(?=$|{)", await terminal.run(snippets["scopes"]), re.DOTALL)
    assert (json.loads(users)["users"], json.loads(beats)["accepted"]) == ([], 1)
    assert json.loads(await terminal.run(snippets["refused"])) == json.loads(snippets["refusal"])
    [audit] = (await terminal.run(snippets["audit"])).splitlines()
    assert "by=support-desk" in audit
    assert "outcome=done" in audit
    assert "user=ana" in audit

    old = await token(terminal)
    address = reader.url(8000).replace("http", "ws", 1) + "/ws/presence"
    async with websockets.connect(f"{address}?token={old}") as socket:
        client = Client(socket)
        await client.receive("presence.self")
        await terminal.run(snippets["step-1"])
        await reloaded(reader, 1)
        await terminal.run(snippets["sign"])
        new = await token(terminal)
        assert (await status(terminal, old), await status(terminal, new)) == ("200", "200")
        await terminal.run(snippets["step-2"])
        await reloaded(reader, 2)
        assert (await status(terminal, old), await status(terminal, new)) == ("401", "200")
        await client.in_step()
        client.reader.cancel()


async def token(terminal):
    return (await terminal.run("herenow token bo")).strip()


async def status(terminal, token):
    url = "http://127.0.0.1:8000/api/v1/presence/me"
    return await terminal.run(f"curl -s -o answer -w '%{{http_code}}' -H 'Authorization: Bearer {token}' {url}")


async def reloaded(reader, times):
    async with asyncio.timeout(PATIENCE):
        while (reader.folder / "herenow.log").read_text().count("secret.reloaded") < times:
            await asyncio.sleep(0.02)
