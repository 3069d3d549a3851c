"""Takes the pictures of the tutorial, by following it: both tabs beside each other, light and dark.

    .venv/bin/python docs/screenshots_tutorial.py

As `screenshots.py`, for eyes alone: what the tutorial says is tested by `tests/docs/test_tutorial.py`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.async_api import Browser, FrameLocator, expect
from tests.browser.stage import chromium
from tests.docs.reader import Reader
from tests.docs.site import Site
from tests.docs.snippets import Snippets
from tests.docs.test_tutorial import before
from tests.postgres_server import free_port

PICTURES = Path(__file__).parent / "pictures"
PAGE = "docs/tutorial.md"
ADDED = ("watch.js", "me.html", "me.js", "console.js", "typing.html", "typing.js")
NAMES = ("serve", "follow", "app.py", "page.html", "app", *ADDED)
DESK = """<!doctype html>
<style>
  :root { color-scheme: light dark; }
  body { margin: 0; padding: 24px; display: flex; gap: 24px; background: light-dark(#eceff3, #16181c); }
  figure { margin: 0; flex: 1; border-radius: 10px; overflow: hidden; box-shadow: 0 2px 12px #0003;
    background: light-dark(#fff, #202327); }
  figcaption { font: 13px system-ui, sans-serif; padding: 8px 14px; color: light-dark(#555, #aaa);
    background: light-dark(#f6f7f9, #2a2e33); }
  iframe { border: 0; width: 100%; height: HEIGHTpx; display: block; }
</style>
<figure><figcaption>127.0.0.1:9000/?me=ana</figcaption><iframe id="ana" src="URL/?me=ana"></iframe></figure>
<figure><figcaption>127.0.0.1:9000/?me=bo</figcaption><iframe id="bo" src="URL/?me=bo"></iframe></figure>
"""


async def main() -> None:
    for scheme in ("light", "dark"):
        with tempfile.TemporaryDirectory() as folder:
            reader, desk = Reader(Path(folder), 8000, 9000), Site()
            await desk.start(free_port())
            try:
                async with chromium() as browser:
                    await take(reader, desk, browser, scheme)
            finally:
                await reader.end()
                await desk.stop()


async def take(reader: Reader, desk: Site, browser: Browser, scheme: str) -> None:
    snippets = Snippets(PAGE, NAMES)
    server, shell, app = reader.terminal(), reader.terminal(), reader.terminal()
    server.environment["HERENOW_PORT"] = str(reader.ports[8000])
    await server.start(snippets["serve"], "ledger  ")
    await shell.run(snippets["follow"])
    reader.save("app.py", snippets["app.py"])
    page = str(snippets["page.html"])
    reader.save("page.html", page)
    await app.start(snippets["app"], "Uvicorn running")
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": 960, "height": 600},
        device_scale_factor=1.5,
    )
    tab = await context.new_page()

    async def open_both(height: int) -> tuple[FrameLocator, FrameLocator]:
        desk.files["/"] = DESK.replace("URL", reader.url(9000)).replace("HEIGHT", str(height))
        await tab.goto(desk.url + "/")
        both = tab.frame_locator("#ana"), tab.frame_locator("#bo")
        for frame in both:
            for user in ("ana", "bo"):
                await expect(frame.locator(f"green-dot[user={user}]")).to_have_attribute("status", "online")
        return both

    await open_both(230)
    await tab.screenshot(path=PICTURES / f"tutorial-dots-{scheme}.png", clip=cut(230))
    for name in ADDED:
        page = before("<script" if name.endswith("html") else "</script>", page, snippets[name])
    reader.save("page.html", page)
    ana, bo = await open_both(340)
    await bo.locator("body").evaluate(
        'here.me.set({ mode: "busy", text: "In a meeting", emoji: "📅", until: "17:00" })'
    )
    await bo.locator("#text").press_sequentially("In five min")
    await expect(ana.locator("#typing")).to_have_text("bo is typing…")
    await expect(ana.locator("#bo")).to_contain_text("meeting")
    await tab.mouse.move(0, 0)
    await tab.screenshot(path=PICTURES / f"tutorial-typing-{scheme}.png", clip=cut(340))


def cut(height: int) -> dict[str, float]:
    return {"x": 0, "y": 0, "width": 960, "height": height + 81}


if __name__ == "__main__":
    asyncio.run(main())
