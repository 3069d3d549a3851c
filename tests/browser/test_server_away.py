"""An application whose pages work without herenow: the server is missing for a long time, then it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect
from tests.browser.stage import MS
from tests.docs.site import Site
from tests.ports import free_port
from tests.processes import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUILT = Path(__file__).parents[2] / "src" / "herenow" / "api" / "static"
PAGE = """<!doctype html><green-dot user="bo"></green-dot>
<script type="module">
  import { Herenow } from "/herenow.js"; // bundled with the application
  import { defineGreenDot } from "/green-dot.js";
  const token = () => fetch("/presence-token").then((answer) => answer.text());
  globalThis.here = new Herenow("HERE/ws/presence", { token });
  defineGreenDot(here);
  here.watch(["bo"], () => {});
  here.typing({ to: "bo" });
  here.me.set({ mode: "busy" }); // nobody catches that it does not arrive
  globalThis.choice = here.me.set({ mode: "away" }).catch((error) => error.code);
</script>"""
MINUTES = 20


async def test_a_page_with_status_dots_connects_again_and_again_until_the_server_is_reachable(tmp_path, browser):
    site, port = Site(), free_port()
    await site.start(free_port())
    url = f"http://127.0.0.1:{port}"
    site.files |= {f"/{name}": (BUILT / name).read_text() for name in ("herenow.js", "green-dot.js")}
    site.files["/"] = PAGE.replace("HERE", url)
    server = Server(tmp_path, {"port": port, "origins": site.url, "dead_after": 600})
    context = await browser.new_context()
    page = await context.new_page()
    tries, errors = [], []
    page.on("websocket", lambda socket: tries.append(socket))
    page.on("pageerror", lambda error: errors.append(error.message))
    try:
        await context.add_cookies([{"name": "user", "value": "ana", "url": site.url}])
        await page.clock.install()
        await page.goto(site.url + "/")
        await page.wait_for_function("globalThis.here?.state.phase === 'reconnecting'")
        for _ in range(MINUTES * 6):
            before = len(tries)
            await page.clock.run_for(10_000)
            assert len(tries) - before < 10, "a storm"
        assert MINUTES < len(tries) < MINUTES * 10  # about every 15 s
        assert await page.evaluate("choice") == "no_answer"
        await expect(page.locator("green-dot")).to_have_attribute("status", "unknown")

        await server.start()
        await server.befriend("ana", "bo")
        for _ in range(12):
            if await page.evaluate("here.state.phase") == "connected":
                break
            await page.clock.run_for(5_000)
        await page.clock.resume()
        await expect(page.locator("green-dot")).to_have_attribute("status", "offline", timeout=MS)
        assert errors == []
    finally:
        await context.close()
        await site.stop()
        if server.process is not None:
            await server.kill()
