"""Takes the pictures that the documentation shows: of the demo and the dashboard, light and dark, wide and narrow.

    .venv/bin/python docs/screenshots.py [demo] [dashboard]

Servers of its own, a real Chromium, people who do what they do in every picture. For the dashboard a crowd comes and goes on
two nodes for as long as its charts go back: five minutes. The pictures look as they should with the fonts of Debian's
`fonts-inter` and `fonts-noto-color-emoji`. No test compares them: they are for eyes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from playwright.async_api import Browser
from tests.browser.stage import PHONE, Person, Tab, chromium
from tests.processes import Server, token
from tests.redis_servers import running

SCHEMES = ("light", "dark")
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
    wanted = sys.argv[1:] or ["demo", "dashboard"]
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fonts = Path(folder) / "fonts.conf"
        fonts.write_text(FONTS)
        async with chromium(env={**os.environ, "FONTCONFIG_FILE": str(fonts)}) as browser:
            if "demo" in wanted:
                await demo(browser, Path(folder))
            if "dashboard" in wanted:
                await dashboard(browser, Path(folder))


async def demo(browser: Browser, folder: Path) -> None:
    for scheme in SCHEMES:
        ledger = folder / scheme
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


# --- The dashboard


BOARD: dict[str, Any] = {"viewport": {"width": 1280, "height": 1000}}
PEOPLE = 60


async def dashboard(browser: Browser, folder: Path) -> None:
    """Two nodes on a Valkey, and a stranger's door; then the Valkey stands still, and then the node is gone."""
    with running() as store:
        shared = {"engine": store.url, "ledger": f"sqlite:///{folder / 'shared.db'}", "grace": 1}
        nodes = [await Server(folder, shared).start() for _ in range(2)]
        crowd = asyncio.create_task(come_and_go(nodes[0]))
        try:
            await asyncio.sleep(300)
            await shoot_boards(browser, nodes[0], "dashboard", {}, there="#targets code")
            elsewhere = {"extra_http_headers": {"x-forwarded-for": "203.0.113.7"}}
            await shoot_boards(browser, nodes[0], "dashboard-door", elsewhere, there="#door", phone=False)
            store.stop_the_clock()
            await shoot_boards(
                browser, nodes[0], "dashboard-trouble", {}, there="#stale:not(:text-is('0'))", phone=False
            )
        finally:
            crowd.cancel()
            store.go_on()
            for node in nodes:
                await node.kill()


async def shoot_boards(
    browser: Browser, node: Server, name: str, options: dict[str, Any], *, there: str, phone: bool = True
) -> None:
    for scheme in SCHEMES:
        for screen, shape in ((BOARD, ""), (PHONE, "phone-"))[: 1 + phone]:
            context = await browser.new_context(color_scheme=scheme, timezone_id="Europe/Berlin", **screen, **options)
            page = await context.new_page()
            await page.goto(f"{node.url}/dashboard")
            await page.locator(there).first.wait_for()
            await asyncio.sleep(2.5)
            await page.screenshot(path=PICTURES / f"{shape}{name}-{scheme}.png")
            await context.close()


async def come_and_go(node: Server) -> None:
    """Everybody watches everybody; some choose something now and then, some leave and return, a few are popular."""
    users = [f"u{number}" for number in range(PEOPLE)]
    chance = random.Random(7)
    rows = [{"kind": "follow", "a": a, "b": b} for a in users for b in users if a != b]
    await post_lines(node, rows)
    await asyncio.gather(*(one_of_many(node, users, user, random.Random(chance.random())) for user in users))


async def post_lines(node: Server, rows: list[dict[str, str]]) -> None:
    async with httpx2.AsyncClient(timeout=60) as http:
        answer = await http.post(
            f"{node.url}/api/v1/relations",
            content="".join(json.dumps(row) + "\n" for row in rows),
            headers={"authorization": f"Bearer {token('ops', 'service')}", "content-type": "application/x-ndjson"},
        )
        answer.raise_for_status()


async def one_of_many(node: Server, users: list[str], user: str, chance: random.Random) -> None:
    await asyncio.sleep(chance.random() * 40)
    while True:
        async with node.client(user) as client:
            await client.send("presence.subscribe", target_user_ids=chance.sample(users, 40))
            if chance.random() < 0.1:
                await client.send("presence.subscribe", target_user_id="a-stranger")
            stays = chance.expovariate(1 / 90)
            while stays > 0:
                wait = min(stays, chance.expovariate(1 / 12))
                stays -= wait
                for _ in range(int(wait)):
                    await asyncio.sleep(1)
                    await client.send("presence.heartbeat", activity_type="active")
                await client.send("presence.set", mode=chance.choice(["auto", "auto", "busy", "away"]))
        await asyncio.sleep(chance.expovariate(1 / 15))


asyncio.run(main())
