"""Five thousand dots on one page of an application, with and without a sufficient subscription limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from tests.browser.stage import MS
from tests.processes import Server, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = 5_000
BUILD = """async ([token, many]) => {
  const { Herenow } = await import("/sdk/herenow.js");
  const { defineGreenDot } = await import("/sdk/green-dot.js");
  globalThis.here = new Herenow("/ws/presence", { token });
  globalThis.failures = [];
  here.onError((error) => failures.push(error.code));
  for (let n = 0; n < many; n++) {
    const dot = document.createElement("green-dot");
    dot.setAttribute("user", `user-${n}`);
    document.body.append(dot);
  }
  defineGreenDot(here);
}"""
COUNT = """() => {
  const counts = {};
  for (const dot of document.querySelectorAll("green-dot")) {
    const status = dot.getAttribute("status") + (dot.hasAttribute("stale") ? " (stale)" : "");
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def crowd(
    tmp_path_factory, browser: Browser, request
) -> AsyncIterator[tuple[Server, Page, list[str], list[str]]]:
    """Open relations; a hundred of the users are connected. Yields the server, the page, its frames and its errors."""
    settings = {"relations": "open", "dead_after": 600, "beat_every": 30, "max_subscriptions": request.param}
    server = await Server(tmp_path_factory.mktemp("crowd"), settings).start()
    page = await browser.new_page()
    sent: list[str] = []
    errors: list[str] = []
    try:
        await beat(server, range(100))
        page.set_default_timeout(MS)
        page.on("pageerror", lambda error: errors.append(error.message))
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
        await page.goto(f"{server.url}/healthz")  # any page of this origin
        await page.evaluate(BUILD, [token("ana"), MANY])
        yield server, page, sent, errors
        assert errors == []
    finally:
        await page.close()
        await server.kill()


async def beat(server: Server, numbers: range, **more: Any) -> None:
    beats = [{"user_id": f"user-{n}", "device_id": "d", **more} for n in numbers]
    headers = {"authorization": f"Bearer {token('ops', 'service')}"}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{server.url}/api/v1/heartbeats", json=beats, headers=headers)
    assert answer.json()["errors"] == []


async def shows(page: Page, counts: dict[str, int]) -> None:
    await page.wait_for_function(
        f"""(wanted) => {{
          const counts = ({COUNT})();
          return Object.keys(counts).length === Object.keys(wanted).length
            && Object.entries(wanted).every(([status, count]) => counts[status] === count);
        }}""",
        arg=counts,
    )


@pytest.mark.parametrize("crowd", [6_000], indirect=True)
async def test_five_thousand_status_dots_on_one_page_show_the_right_status_through_changes(crowd):
    server, page, sent, _ = crowd
    await shows(page, {"online": 100, "offline": 4_900})
    assert len(sent) < 15, "asked for one by one"
    await beat(server, range(100, 1_100))
    await shows(page, {"online": 1_100, "offline": 3_900})
    # They scroll out of view and back: no user is subscribed twice, none is dropped.
    await page.evaluate("document.body.replaceChildren(...[...document.body.children].reverse())")
    await beat(server, range(1_000), activity_type="idle")
    await shows(page, {"online": 100, "away": 1_000, "offline": 3_900})
    assert len(sent) < 30
    await server.kill()
    await shows(page, {"online (stale)": 100, "away (stale)": 1_000, "offline (stale)": 3_900})


@pytest.mark.parametrize("crowd", [500], indirect=True)
async def test_status_dots_of_users_over_the_subscription_limit_show_unknown_and_not_offline(crowd):
    _, page, sent, _ = crowd
    await shows(page, {"online": 100, "offline": 400, "unknown": 4_500})
    # A user without an answer yet is unknown, too.
    await page.wait_for_function("here.get('user-4999').denied === 'too_many_subscriptions'")
    # When there is room again, the denied users are subscribed once.
    await page.evaluate("for (const dot of [...document.querySelectorAll('green-dot')].slice(0, 50)) dot.remove()")
    await shows(page, {"online": 50, "offline": 450, "unknown": 4_450})
    assert len(sent) < 40
    assert await page.evaluate("failures") == []
