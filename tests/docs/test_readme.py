"""The README, and the page of the Python client."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect
from tests.browser.stage import MS
from tests.docs.snippets import ROOT, runs
from tests.docs.test_rooms import run
from tests.processes import SECRET, token

from herenow.client import mint

pytestmark = pytest.mark.asyncio(loop_scope="module")


@runs("README.md", "demo")
async def test_the_demo_in_the_readme_starts_with_one_command_and_opens_with_one_link(follow, tabs, snippets):
    reader = follow(8000, HERENOW_LEDGER="sqlite://", HERENOW_PORT="0")
    terminal = reader.terminal()
    terminal.folder = ROOT
    printed = await terminal.start(snippets["demo"], "two tabs")
    link = re.search(r"http://\S+", (await terminal.says("/#key=")).partition("two tabs")[2])
    assert link, printed
    page = await tabs.open(link[0])
    await page.get_by_role("link", name="Ana").click()
    await expect(page.locator("#my-line")).to_have_text("Available", timeout=MS)


@runs("README.md", "page", "server")
async def test_the_html_page_of_the_readme_shows_the_status_of_a_user(reader, tabs, snippets):
    names = {"secret": SECRET, "user_id": "ana"}
    await asyncio.to_thread(exec, reader.here(snippets["server"]), names)
    assert names["token"]
    page = await tabs.put(reader, snippets["page"].replace("console.log(", "(globalThis.said ??= []).push("), "ana")
    await expect(page.locator("green-dot")).to_have_attribute("status", "offline", timeout=MS)
    await reader.server.rest("POST", "/presence/heartbeat", "bo", service=False, device_id="phone")
    await expect(page.locator("green-dot")).to_have_attribute("status", "online", timeout=MS)
    assert [each for each in await page.evaluate("said") if each] == ["offline", "online"]


@runs("docs/python-client.md")
async def test_the_code_on_the_documentation_page_of_the_python_client_works_as_shown(reader, snippets, capsys):
    names = {"secret": SECRET, "user_id": "ana"}
    exec(snippets["mint"], names)
    assert await reader.server.rest("GET", "/presence/me", "ana", service=False)
    await asyncio.to_thread(exec, reader.here(snippets["rest"]), names)
    assert (await reader.server.rest("GET", "/explain?viewer=bo&target=ana"))["rule"] == "contacts"
    me = await reader.server.rest("GET", "/presence/me", "ana", service=False)
    assert me["mode"] == "busy"

    async def fetch_token() -> str:
        return mint(SECRET, "ana")

    live = asyncio.create_task(run(reader.here(snippets["live"]), {"fetch_token": fetch_token}))
    printed = ""
    try:
        async with asyncio.timeout(MS / 1000):
            while "bo offline" not in printed:
                printed += capsys.readouterr().out
                await asyncio.sleep(0.02)
            await reader.server.rest("POST", "/presence/heartbeat", "bo", service=False, device_id="phone")
            while "bo online" not in printed:
                assert not live.done() or live.result()
                printed += capsys.readouterr().out
                await asyncio.sleep(0.02)
    finally:
        live.cancel()
        await asyncio.gather(live, return_exceptions=True)
    assert token("ana") != names["token"]
