"""The tutorial, from an empty folder to the last command, with two users in two tabs."""

from __future__ import annotations

import asyncio
import json
import re
import sysconfig
from collections.abc import Callable

import pytest
from playwright.async_api import Page, expect
from tests.browser.stage import MS
from tests.docs.reader import looks_like
from tests.docs.snippets import ROOT, runs

from herenow.client import mint

pytestmark = pytest.mark.asyncio(loop_scope="module")

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the value of build_isolation
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONPATH": sysconfig.get_path("purelib"),
}
"""Packages that `pip install` would download are already installed: it only builds and installs herenow."""


async def dot(page: Page, user: str, status: str) -> None:
    await expect(page.locator(f"green-dot[user={user}]")).to_have_attribute("status", status, timeout=MS)


async def reads(page: Page, place: str, text: str | re.Pattern[str]) -> None:
    await expect(page.locator(place)).to_have_text(text, timeout=MS)


async def says(terminal, command):
    return json.loads(await terminal.run(command))


async def until(page: Page, so: Callable[[], bool]) -> None:
    async with asyncio.timeout(MS / 1000):
        while not so():
            await page.wait_for_timeout(50)


def before(place: str, page: str, addition: str) -> str:
    """Inserts `addition` before the last occurrence of `place`, as the page says."""
    head, found, tail = page.rpartition(place)
    assert found
    return head + addition + found + tail


@runs("docs/tutorial.md")
async def test_the_tutorial_works_from_an_empty_folder(follow, tabs, snippets):
    reader = follow(8000, 9000, **OFFLINE)
    (reader.folder / "herenow").symlink_to(ROOT)

    # 1. Install and start
    first, second, third = reader.terminal(), reader.terminal(), reader.terminal()
    await first.run(snippets["install"])
    dots = reader.folder / "dots"
    assert [each.name for each in dots.iterdir()] == [".venv"]
    assert (await first.run("command -v herenow")).startswith(str(dots))
    first.environment["HERENOW_PORT"] = str(reader.ports[8000])
    printed = await first.start(snippets["serve"], "ledger  ")
    looks_like(printed, reader.here(snippets["served"]) + "…")
    for terminal in (second, third):
        await terminal.run("cd dots")
        await terminal.run(snippets["second-terminal"])

    # 2. Who is who
    assert await second.run(snippets["follow"]) == ""
    looks_like(await second.run(snippets["ask"]), snippets["asked"])

    # 3. A page with dots
    reader.save("dots/app.py", snippets["app.py"])
    page = snippets["page.html"]
    reader.save("dots/page.html", page)
    await third.start(snippets["app"], "Uvicorn running")
    ana = await tabs.open(reader.url(9000) + "/?me=ana")
    await dot(ana, "ana", "online")
    await dot(ana, "bo", "offline")
    bo = await tabs.open(reader.url(9000) + "/?me=bo")
    for tab in (ana, bo):
        await dot(tab, "bo", "online")
        await dot(tab, "ana", "online")
    await bo.close()
    await dot(ana, "bo", "offline")
    bo = await tabs.open(reader.url(9000) + "/?me=bo")
    await dot(ana, "bo", "online")

    # 4 to 6. More than a dot
    for name in ("watch.js", "me.html", "me.js", "console.js", "typing.html", "typing.js"):
        page = before("<script" if name.endswith("html") else "</script>", page, snippets[name])
    reader.save("dots/page.html", page)
    for tab in (ana, bo):
        await tab.reload()
        await reads(tab, "#ana", "online")
        await reads(tab, "#bo", "online")
    await bo.get_by_role("button", name="busy").click()
    await expect(bo.get_by_role("button", name="busy")).to_be_disabled(timeout=MS)
    await dot(ana, "bo", "busy")
    await reads(ana, "#bo", "busy")
    await bo.get_by_role("button", name="invisible").click()
    await dot(ana, "bo", "offline")
    await reads(ana, "#bo", re.compile("^offline · last seen at "))
    await dot(bo, "bo", "online")
    await bo.get_by_role("button", name="available").click()
    await reads(ana, "#bo", "online")
    said = re.search(r"`(here\.me\.set\(.*?\))`", (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))
    assert said
    await bo.evaluate(said[1])
    await reads(ana, "#bo", "busy · 📅 · In a meeting")
    await bo.evaluate("Promise.all([here.me.auto(), here.me.clear()])")
    await reads(ana, "#bo", "online")
    while await ana.locator("#typing").text_content() == "":  # a late node drops typing first
        await bo.locator("#text").press("x")
    await reads(ana, "#typing", "bo is typing…")
    await bo.locator("#text").fill("")
    await reads(ana, "#typing", "")

    # 7. From your back end
    await bo.close()
    await dot(ana, "bo", "offline")
    assert (await says(second, snippets["heartbeat"]))["device_id"] == "phone"
    await dot(ana, "bo", "online")
    await second.run(snippets["calendar"])
    await reads(ana, "#bo", "online · 📅 · In a meeting")
    [shown] = await says(second, snippets["viewer"])
    assert (shown["user_id"], shown["status"], shown["platforms"]) == ("bo", "online", ["mobile"])
    assert await second.run(snippets["unfollow"]) == ""
    await dot(ana, "bo", "offline")
    [shown] = await says(second, snippets["viewer"])
    assert shown["status"] == "offline"

    # If there is no dot
    assert (await says(second, snippets["explain"]))["rule"] == "not_related"
    console: list[str] = []
    ana.on("console", lambda message: console.append(message.text))
    localhost = reader.url(9000).replace("127.0.0.1", "localhost")
    await ana.goto(localhost + "/?me=ana")
    await until(ana, lambda: any("blocked by CORS policy" in each for each in console))
    await ana.route("**/presence-token?*", lambda route: route.fulfill(body=mint("x" * 32, "ana")))
    await ana.goto(reader.url(9000) + "/?me=ana")
    await until(ana, lambda: "herenow: closed token_bad_signature" in console)
    await dot(ana, "bo", "unknown")
    await ana.unroute("**/presence-token?*")
    await ana.goto(reader.url(9000) + "/")
    await until(ana, lambda: any("status of 500" in each for each in console))
    await until(ana, lambda: "herenow: reconnecting token_failed" in console)
