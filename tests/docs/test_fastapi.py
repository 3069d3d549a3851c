"""The FastAPI page, run by uvicorn with a minimal `accounts` module."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from playwright.async_api import expect
from tests.browser.stage import MS
from tests.docs.snippets import runs

pytestmark = pytest.mark.asyncio(loop_scope="module")
GUIDE = "docs/how-to/fastapi.md"

ACCOUNTS = """
from dataclasses import dataclass
from fastapi import HTTPException, Request

@dataclass
class User:
    id: int

def current_user(request: Request) -> User:
    if "user" not in request.cookies:
        raise HTTPException(401)
    return User(int(request.cookies["user"]))
"""
PAGE = """<script type="module">
import { Herenow } from "http://127.0.0.1:8000/sdk/herenow.js";
%s
document.body.dataset.phase = here.state.phase;
here.onState(({ phase }) => (document.body.dataset.phase = phase));
</script><body>"""


@runs(GUIDE, "presence.py", "main.py", "run")
async def test_the_code_of_the_fastapi_guide_mints_tokens_reports_relations_and_reads_statuses(reader, snippets):
    reader.save("accounts.py", ACCOUNTS)
    reader.save("presence.py", snippets["presence.py"])
    reader.save("main.py", snippets["main.py"])
    await reader.terminal().start(snippets["run"], "Uvicorn running")

    def user(number: int) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=reader.url(9000), cookies={"user": str(number)})

    async with httpx2.AsyncClient(base_url=reader.url(9000)) as nobody, user(7) as ana, user(8) as bo:
        assert (await nobody.get("/presence-token")).status_code == 401
        assert (await ana.get("/friends")).json() == []
        assert (await ana.put("/following/8")).status_code == 204
        assert (await bo.put("/following/7")).status_code == 204
        token = (await bo.get("/presence-token")).text
        async with httpx2.AsyncClient(base_url=reader.url(8000)) as herenow:
            headers = {"authorization": f"Bearer {token}"}
            beat = await herenow.post("/api/v1/presence/heartbeat", json={"device_id": "d"}, headers=headers)
            assert beat.status_code == 200
        async with asyncio.timeout(MS / 1000):
            while (await ana.get("/friends")).json() != [{"user": "8", "status": "online"}]:
                await asyncio.sleep(0.05)


@runs(GUIDE, "token.js")
async def test_the_token_view_of_the_fastapi_guide_distinguishes_a_signed_out_user_from_an_error(
    reader, site, tabs, snippets
):
    site.files["/"] = reader.here(PAGE % snippets["token.js"])
    page = await tabs.show(site, "7")
    await expect(page.locator("body")).to_have_attribute("data-phase", "connected", timeout=MS)
    await page.route("**/presence-token", lambda route: route.fulfill(status=401))
    await page.reload()
    await expect(page.locator("body")).to_have_attribute("data-phase", "signed_out", timeout=MS)
    asked = []

    async def fail_twice(route):
        asked.append(route)
        await (route.fulfill(status=500) if len(asked) < 3 else route.fallback())

    await page.unroute("**/presence-token")
    await page.route("**/presence-token", fail_twice)
    await page.reload()
    await expect(page.locator("body")).to_have_attribute("data-phase", "connected", timeout=MS)
