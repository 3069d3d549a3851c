"""A page shows that something is wrong, and never a wrong dot."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest
from playwright.async_api import Route, expect
from tests.browser.stage import MS, link
from tests.processes import Server

from herenow.transport.auth import mint

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_demo_page_recovers_after_the_server_was_killed_and_restarted(come, demo):
    ana, bo = [await (await come(user)).tab() for user in ("ana", "bo")]
    await ana.sees("bo", "online")
    await bo.sees("ana", "online")
    await bo.choose("busy")
    await ana.sees("bo", "busy")
    record = await ana.record("bo")
    await demo.kill()
    await ana.sees("bo", "busy", stale=True)
    await ana.reads("#banner", "The connection is lost")
    await ana.reads_about("bo", "last known")
    await ana.reads("#my-line", "Not connected")
    assert await record.looks() == ["busy", "busy (stale)"]
    await restart(demo)
    for tab in (ana, bo):
        await expect(tab.at("#banner")).to_be_hidden(timeout=MS)
    await ana.sees("bo", "busy")  # the mode survived the restart
    await bo.choose("auto")
    await ana.sees("bo", "online")


async def test_a_mode_chosen_in_the_demo_while_the_server_is_away_is_applied_when_it_returns(come, demo):
    ana, bo = [await (await come(user)).tab() for user in ("ana", "bo")]
    await ana.sees("bo", "online")
    await demo.stop()
    await bo.reads("#banner", "The connection is lost")
    await restart(demo)
    await bo.at("#modes [data-mode=away]").click()
    await ana.sees("bo", "away")


async def test_the_demo_page_reports_a_refused_token_retries_a_few_times_and_connects_with_a_new_one(come, demo):
    person = await come("bo")
    asked = 0

    async def wrong(route: Route) -> None:
        nonlocal asked
        asked += 1
        token = mint(f"not the server's secret, number {asked}", "bo", scope=None, ttl=60, now=2_000_000_000)
        await route.fulfill(body=token)

    await person.context.route("**/demo/token/*", wrong)
    await person.context.add_init_script("Math.random = () => 0.01;")  # short waits
    bo = await person.tab()
    await bo.reads("#banner", "The server refuses the token")
    assert len(person.sockets) == 4  # few attempts
    await person.context.unroute("**/demo/token/*")
    await bo.at("#banner-act").click()
    await bo.is_connected()


async def test_the_browser_client_asks_the_back_end_for_a_token_until_it_gets_one(come):
    person = await come("bo")
    asked = 0

    async def away(route: Route) -> None:
        nonlocal asked
        asked += 1
        await route.abort()

    await person.context.route("**/demo/token/*", away)
    bo = await person.tab(clock=True)
    await bo.reads("#banner", "No token is to be had")
    await bo.page.clock.run_for(60_000)
    assert asked < 20
    assert person.sockets == []
    await person.context.unroute("**/demo/token/*")
    await bo.page.clock.run_for(60_000)
    await bo.is_connected()


@pytest.mark.parametrize("hours", [-26, 26])
async def test_a_browser_clock_wrong_by_a_day_does_not_affect_the_demo(come, hours):
    ana = await (await come("ana")).tab()
    person = await come("bo")
    await person.context.add_init_script(f"const now = Date.now; Date.now = () => now() + {hours} * 3_600_000;")
    bo = await person.tab()
    await bo.is_connected()
    await bo.sees("ana", "online")
    await ana.sees("bo", "online")
    await ana.choose("invisible")
    await bo.reads_about("ana", "Last seen just now")
    await bo.at("#edit").click()
    await bo.at("#mine-text").fill("Lunch")
    await bo.at("#mine-until").select_option("30")
    await bo.at("#mine-save").click()
    await ana.reads_about("bo", "Lunch")


FORBIDDEN = """
const refuse = () => { throw new DOMException("The operation is insecure.", "SecurityError"); };
for (const name of ["localStorage", "sessionStorage", "indexedDB"]) Object.defineProperty(window, name, { get: refuse });
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        "window.BroadcastChannel = class { constructor() { refuse(); } };",
        "Object.defineProperty(navigator, 'locks', { value: undefined });",
        "if (navigator.locks) navigator.locks.request = async () => refuse();",
    ],
    ids=["storage", "channels", "no locks", "locks"],
)
async def test_the_demo_works_without_browser_storage_and_without_broadcast_channel(come, more):
    ana = await (await come("ana")).tab()
    person = await come("bo")
    await person.context.add_init_script(FORBIDDEN + more)
    one, two = await person.tab(), await person.tab()
    for tab in (one, two):
        await tab.sees("ana", "online")
        await expect(tab.at("#banner")).to_be_hidden(timeout=MS)
    await ana.sees("bo", "online")
    await two.choose("busy")
    await expect(one.at("#modes [data-mode=busy]")).to_have_attribute("aria-checked", "true", timeout=MS)
    await ana.sees("bo", "busy")


ODD = [
    "a/b?c#d%25&e=f",
    '"><img/src=x/onerror=alert(1)>',
    "ユーザー",
    "👩‍👩‍👧",
    "__proto__",
    "toString",
    "'\\",
    "#lobby2",
    "0",
]


async def test_user_ids_with_special_characters_work_in_the_demo(come, demo):
    ana_id, *others = ODD
    for other in others:
        for a, b in ((ana_id, other), (other, ana_id)):
            await demo.rest("PUT", f"/follows/{quote(a, safe='')}/{quote(b, safe='')}")
    ana = await (await come(ana_id)).tab(link(ana_id))
    await ana.reads("#my-name", ana_id)
    for other in others:
        await ana.sees(other, "offline")
        await expect(ana.row(other).locator("strong")).to_have_text(other)
    assert await ana.at("img").count() == 0
    for other in others:
        tab = await (await come(other)).tab(link(other))
        await ana.sees(other, "online")
        await tab.sees(ana_id, "online")
        await tab.talk_to(ana_id)
        await tab.types(ana.row(other), "typing…")
    await ana.talk_to(others[0])
    await ana.at("#block").click()
    await ana.sees(others[0], "offline")
    await ana.reads_about(others[0], "Blocked")


async def restart(server: Server) -> None:
    """Restart at the same address."""
    server._settings["port"] = urlsplit(server.url).port
    await server.start()
