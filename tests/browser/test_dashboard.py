"""The dashboard in a real browser: live or marked as not live, without foreign requests, and closed to remote visitors
without a token.
"""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.browser.stage import MS, PHONE, Person
from tests.browser.test_trouble import restart
from tests.processes import Server, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

ELSEWHERE = {"x-forwarded-for": "203.0.113.7"}
"""Headers of a proxy for a remote visitor."""


@pytest_asyncio.fixture(loop_scope="module")
async def operator(browser, demo):
    """`await operator()`: opens a page."""
    people: list[Person] = []

    async def page(path="/dashboard", **options):
        context = await browser.new_context(**options)
        people.append(Person(context, demo.url, "operator"))
        page = await context.new_page()
        page.on("console", lambda message: people[-1].errors.append(message.text) if wrong(message) else None)
        await page.goto(demo.url + path)
        return page

    yield page
    for each in people:
        await each.leave()


def wrong(message):
    """True for console errors of ours; the browser itself reports unreachable servers and refusals."""
    return message.type in ("error", "warning") and "Failed to load resource" not in message.text


async def is_live(page):
    await expect(page.locator("#live")).to_contain_text("Live", timeout=MS)
    await expect(page.locator("#banner")).to_be_hidden()


async def test_the_dashboard_works_without_a_token_on_loopback_and_shows_live_figures(operator, come, demo: Server):
    page = await operator()
    await is_live(page)
    await expect(page.locator("#troubles")).to_have_text("All is well.")
    before = int(await page.locator("#connections").inner_text())
    ana = await (await come("ana")).tab()
    bo = await (await come("bo")).tab()
    await ana.sees("bo", "online")
    await expect(page.locator("#connections")).to_have_text(str(before + 2), timeout=MS)
    await expect(page.locator("#chart-connections-legend")).to_contain_text(f"connections {before + 2}", timeout=MS)
    drawn = await page.locator("#chart-connections canvas").screenshot()
    for mode in ("busy", "auto", "away", "auto"):
        await bo.choose(mode)
    await expect(page.locator("#targets code").first).to_be_visible(timeout=MS)
    assert "bo" not in await page.locator("#targets").inner_text()
    await expect(page.locator("#deliveries")).not_to_have_text("0", timeout=MS)
    await expect(page.locator("#p99")).not_to_have_text("–", timeout=MS)
    async with asyncio.timeout(MS / 1000):
        while await page.locator("#chart-connections canvas").screenshot() == drawn:
            await asyncio.sleep(0.2)


async def test_the_dashboard_shows_history_from_before_it_was_opened(operator, demo):
    first = await operator()
    await is_live(first)
    await expect(first.locator("#chart-users-legend b").first).not_to_have_text("–", timeout=MS)
    second = await operator()
    await is_live(second)
    await expect(second.locator("#chart-users-legend b").first).not_to_have_text("–", timeout=1_000)


async def test_the_dashboard_shows_not_live_while_the_server_is_away(operator, demo):
    page = await operator()
    await is_live(page)
    await demo.kill()
    await expect(page.locator("#banner")).to_contain_text("The server does not answer", timeout=MS)
    await expect(page.locator("#banner")).to_contain_text("not the current one")
    await expect(page.locator("#live")).to_contain_text("Not live")
    await expect(page.locator("#troubles")).to_be_hidden()  # the state is unknown
    assert float(await page.evaluate("getComputedStyle(document.getElementById('board')).opacity")) < 0.6
    await restart(demo)
    await is_live(page)
    await expect(page.locator("#troubles")).to_have_text("All is well.")


async def test_a_remote_visitor_of_the_dashboard_needs_a_token_that_is_kept_for_one_tab(operator, demo):
    page = await operator(extra_http_headers=ELSEWHERE)
    await expect(page.locator("#door")).to_be_visible(timeout=MS)
    await expect(page.locator("#board")).to_be_hidden()
    await expect(page.locator("#token")).to_be_focused()
    await page.keyboard.insert_text(token("ops", "service"))
    await page.keyboard.press("Enter")
    await is_live(page)
    await expect(page.locator("#door")).to_be_hidden()
    await page.reload()
    await is_live(page)
    assert await page.evaluate("Object.keys(localStorage).length") == 0
    assert page.url.endswith("/dashboard")
    other = await page.context.new_page()
    await other.goto(demo.url + "/dashboard")
    await expect(other.locator("#door")).to_be_visible(timeout=MS)
    await page.locator("#leave").click()
    await expect(page.locator("#door")).to_be_visible()
    await expect(page.locator("#board")).to_be_hidden()
    assert await page.evaluate("Object.keys(sessionStorage).length") == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("a.b.c", "does not accept this token"),
        (token("ana"), "is a user token"),
        (token("ops", "service", ttl=-10), "has expired"),
        ("what is this?", "This is not a token"),
    ],
    ids=["made up", "a user's", "expired", "no token"],
)
async def test_the_dashboard_explains_why_a_token_is_refused(operator, given, why):
    page = await operator(extra_http_headers=ELSEWHERE)
    await page.locator("#token").fill(given)
    await page.locator("#door-form button").click()
    await expect(page.locator("#door-error")).to_contain_text(why, timeout=MS)
    await expect(page.locator("#board")).to_be_hidden()


async def test_the_dashboard_asks_for_a_new_token_when_the_token_expires(operator):
    page = await operator(extra_http_headers=ELSEWHERE)
    await page.locator("#token").fill(token("ops", "service", ttl=6))
    await page.locator("#door-form button").click()
    await is_live(page)
    await expect(page.locator("#door-error")).to_contain_text("has expired", timeout=MS)
    await expect(page.locator("#board")).to_be_hidden()


async def test_the_dashboard_works_in_a_browser_without_session_storage(operator):
    page = await operator("/healthz", extra_http_headers=ELSEWHERE)
    await page.context.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
    )
    await page.goto(page.url.replace("/healthz", "/dashboard"))
    await page.locator("#token").fill(token("ops", "service"))
    await page.locator("#door-form button").click()
    await is_live(page)


async def test_the_dashboard_fits_a_phone_screen(operator):
    page = await operator(**PHONE)
    await is_live(page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_hidden_dashboard_sends_no_requests_and_catches_up_when_shown(operator):
    page = await operator()
    await is_live(page)
    await page.evaluate(
        "Object.defineProperty(document, 'hidden', { configurable: true, get: () => true }); "
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await asyncio.sleep(5)
    assert asked == []
    await page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    await is_live(page)
    assert asked


async def test_the_time_span_of_the_dashboard_charts_can_be_chosen_with_the_keyboard(operator):
    page = await operator()
    await is_live(page)
    longer = page.locator("#span button", has_text="30 minutes")
    await longer.focus()
    await page.keyboard.press("Enter")
    await expect(longer).to_have_attribute("aria-pressed", "true")
    await is_live(page)
