"""herenow at another site than the page: a third party, which browsers restrict more and more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Frame, Page, async_playwright, expect
from tests.browser.stage import FLAGS, MS, installed
from tests.docs.site import Site
from tests.ports import free_port
from tests.processes import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_THIRD_PARTIES = {"profile": {"block_third_party_cookies": True, "cookie_controls_mode": 1}}
PAGE = """<!doctype html><green-dot user="bo"></green-dot>
<script type="module">
  import { Herenow } from "HERE/sdk/herenow.js";
  import { defineGreenDot } from "HERE/sdk/green-dot.js";
  const token = () => fetch("/presence-token").then((answer) => answer.text());
  globalThis.here = new Herenow("HERE/ws/presence", { token });
  globalThis.failures = [];
  here.onError((error) => failures.push(error.code));
  defineGreenDot(here);
  await here.me.set({ text: "from a third party" });
  globalThis.done = true;
</script>"""


@pytest_asyncio.fixture(loop_scope="module")
async def here(tmp_path) -> AsyncIterator[tuple[Server, Site]]:
    """The server, and a page at another origin that it allows."""
    site = Site()
    await site.start(free_port())
    origins = f"{site.url},{site.url.replace('127.0.0.1', 'localhost')}"
    server = await Server(tmp_path, {"origins": origins, "dead_after": 60, "grace": 60}).start()
    site.files["/"] = PAGE.replace("HERE", server.url)
    await server.befriend("ana", "bo")
    await server.rest("POST", "/presence/heartbeat", "bo", service=False, device_id="phone")
    yield server, site
    await server.kill()
    await site.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def strict(tmp_path) -> AsyncIterator[BrowserContext]:
    """A browser with third-party cookies disabled."""
    profile = tmp_path / "profile" / "Default"
    profile.mkdir(parents=True)
    (profile / "Preferences").write_text(json.dumps(NO_THIRD_PARTIES))
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            profile.parent, executable_path=installed(), args=list(FLAGS)
        )
        context.set_default_timeout(MS)
        yield context
        await context.close()


def watched(page: Page) -> list[str]:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(error.message))
    return errors


async def works(where: Page | Frame) -> None:
    await expect(where.locator("green-dot")).to_have_attribute("status", "online", timeout=MS)
    await where.wait_for_function("globalThis.done")
    assert await where.evaluate("failures") == []


async def test_a_page_can_use_a_herenow_server_at_another_site_without_third_party_cookies(here, strict):
    server, site = here
    page = await strict.new_page()
    errors = watched(page)
    elsewhere = site.url.replace("127.0.0.1", "localhost")  # for a browser, another site than the server's
    await strict.add_cookies([{"name": "user", "value": "ana", "url": elsewhere}])
    await page.goto(elsewhere + "/")
    await works(page)
    mine = [each for each in await strict.cookies() if each["name"] != "user"]
    assert not mine
    assert (await server.rest("GET", "/presence/ana"))["custom_status"]["text"] == "from a third party"
    assert errors == []


async def test_a_status_dot_works_in_a_third_party_frame_without_browser_storage(here, strict):
    """As in an embedded widget: storage is refused or lost, and tabs cannot find each other."""
    server, site = here
    page = await strict.new_page()
    errors = watched(page)
    site.files["/"] = site.files["/"].replace('fetch("/presence-token")', 'fetch("/presence-token?user=ana")')
    site.files["/outside"] = f'<!doctype html><iframe src="{site.url}/"></iframe>'
    await page.goto(site.url.replace("127.0.0.1", "localhost") + "/outside")
    [_, frame] = page.frames
    refused = await frame.evaluate("(() => { try { return !localStorage } catch { return true } })()")
    assert refused, "this browser keeps third parties out of their storage, or the test shows nothing"
    await works(frame)
    await page.reload()
    await works(page.frames[1])
    assert errors == []
