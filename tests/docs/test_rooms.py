"""Rooms and typing: members by REST, a page that receives typing of a room, a bot."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import Page, expect
from tests.browser.stage import MS
from tests.docs.snippets import runs
from tests.processes import SECRET

from herenow.client import Herenow, mint

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "docs/how-to/rooms-and-typing.md"


async def type_until(page: Page, seen: Page, text: str) -> None:
    """Types key by key until it is seen: a late node drops typing before anything else."""
    while await seen.locator("#typing").text_content() != text:
        await page.locator("#text").press("x")


@runs(PAGE, "members", "import", "room.html", "bot.py")
async def test_the_code_of_the_rooms_guide_shows_typing_to_members_of_a_room(reader, site, tabs, snippets):
    await reader.server.befriend("ana", "bo", "chen", "bot")
    terminal = reader.terminal()
    assert await terminal.run(snippets["members"]) == ""
    assert json.loads(await terminal.run(snippets["import"])) == {"rows": 1, "changed": 1}
    for user, member in {"ana": True, "bo": True, "dara": True, "chen": False}.items():
        answer = await terminal.run(
            'curl -o /dev/null -w "%{http_code}" -H "Authorization: Bearer $SERVICE" '
            f"{reader.server.url}/api/v1/rooms/team/members/{user}"
        )
        assert (answer != "404") is member
    site.files["/"] = "<!doctype html><body>" + reader.here(snippets["room.html"])
    ana, bo, chen = [await tabs.show(site, user) for user in ("ana", "bo", "chen")]
    warned: list[str] = []
    chen.on("console", lambda message: warned.append(message.text))
    await chen.reload()
    for page in (ana, bo, chen):
        await expect(page.locator("body")).to_have_attribute("data-connection", "connected", timeout=MS)
    async with asyncio.timeout(MS / 1000):
        await type_until(bo, ana, "bo is typing…")
        while not any("not_a_member" in each for each in warned):
            await chen.wait_for_timeout(50)
    assert await chen.locator("#typing").text_content() == ""
    assert await bo.locator("#typing").text_content() == "", "one is not told of one's own typing"
    await bo.locator("#text").press("Enter")
    await expect(ana.locator("#typing")).to_have_text("", timeout=MS)
    await expect(bo.locator("#text")).to_have_value("")

    await reader.server.rest("PUT", "/rooms/team/members/bot")
    typed = asyncio.Event()

    async def think() -> str:
        await expect(ana.locator("#typing")).to_have_text("bot is typing…", timeout=MS)
        typed.set()
        return "42"

    url = reader.server.url.replace("http", "ws", 1) + "/ws/presence"
    names = {"Herenow": Herenow, "mint": mint, "secret": SECRET, "url": url, "think": think}
    async with asyncio.timeout(MS / 1000):
        await run(snippets["bot.py"], names)
    assert typed.is_set()
    await expect(ana.locator("#typing")).to_have_text("", timeout=MS)


async def run(code: str, names: dict) -> None:
    """Runs code that contains `await`."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    exec(f"async def snippet():\n{body}", names)
    await names["snippet"]()
