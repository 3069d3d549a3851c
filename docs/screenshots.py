"""Takes the pictures of the demo that the documentation shows: light and dark, wide and narrow.

    .venv/bin/python docs/screenshots.py

A server of its own, a real Chromium, three people who do what they do in every picture. The pictures look as they should
with the fonts of Debian's `fonts-inter` and `fonts-noto-color-emoji`. No test compares them: they are for eyes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.async_api import Browser
from tests.browser.stage import PHONE, Person, Tab, chromium
from tests.processes import Server

PICTURES = Path(__file__).parent / "pictures"
WIDE: dict[str, Any] = {"viewport": {"width": 1120, "height": 680}}
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include>/etc/fonts/fonts.conf</include>
  <match target="pattern">
    <test name="family"><string>system-ui</string></test>
    <edit name="family" mode="assign" binding="strong"><string>Inter</string></edit>
  </match>
  <match target="pattern">
    <test name="family"><string>sans-serif</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
</fontconfig>
"""


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fonts = Path(folder) / "fonts.conf"
        fonts.write_text(FONTS)
        async with chromium(env={**os.environ, "FONTCONFIG_FILE": str(fonts)}) as browser:
            for scheme in ("light", "dark"):
                ledger = Path(folder) / scheme
                ledger.mkdir()
                server = await Server(ledger, {"grace": 1}, "serve", "--demo").start()
                try:
                    await take(browser, server, scheme)
                finally:
                    await server.kill()


async def take(browser: Browser, server: Server, scheme: str) -> None:
    async def person(user: str, screen: dict[str, Any]) -> Person:
        context = await browser.new_context(
            color_scheme=scheme, reduced_motion="reduce", timezone_id="Europe/Berlin", **screen
        )
        return Person(context, server.url, user)

    wide = await person("ana", WIDE)
    await shoot(await wide.tab(""), "#faces a", f"choose-{scheme}")
    ana, bo, chen = await wide.tab(), await wide.tab("user=bo"), await wide.tab("user=chen")
    dara = await person("dara", PHONE)
    phone = await dara.tab()
    for other in ("bo", "chen", "dara"):
        await ana.sees(other, "online")
    await chen.choose("busy")
    await bo.at("#edit").click()
    await bo.at("#emojis button").nth(1).click()
    await bo.at("#mine-text").fill("Out for noodles, back soon")
    await shoot(bo, "#mine-visibility:enabled", f"status-{scheme}")
    await bo.at("#mine-save").click()
    await ana.reads_about("bo", "noodles")
    await talk(bo, "ana", "Are you coming along? We have the table at the window.")
    await talk(ana, "bo", "Give me five minutes!")
    await bo.at("#text").press_sequentially("Taking")
    await phone.reads_about("bo", "noodles")
    await shoot(phone, "#people", f"phone-people-{scheme}")
    await ana.reads("#typing", "Bo is typing")
    await shoot(ana, "#typing", f"talk-{scheme}")
    await phone.row("bo").tap()
    await bo.talk_to("dara")
    await bo.at("#text").press_sequentially("Hello")
    await phone.reads("#typing", "Bo is typing")
    await shoot(phone, "#typing", f"phone-talk-{scheme}")
    await server.kill()
    await ana.sees("bo", "online", stale=True)
    await asyncio.sleep(1)  # the banner waits a moment before it shows
    await shoot(ana, "#banner", f"lost-{scheme}")
    for each in (wide, dara):
        await each.leave()


async def talk(tab: Tab, to: str, text: str) -> None:
    await tab.talk_to(to)
    await tab.at("#text").fill(text)
    await tab.at("#text").press("Enter")


async def shoot(tab: Tab, there: str, name: str) -> None:
    await tab.at(there).first.wait_for()
    await tab.page.bring_to_front()
    await tab.page.evaluate("document.activeElement.blur()")
    await tab.page.mouse.move(0, 0)
    await tab.page.screenshot(path=PICTURES / f"{name}.png")


asyncio.run(main())
