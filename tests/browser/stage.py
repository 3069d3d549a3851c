"""Users in a real Chromium: what they see and do, and that no page has errors.

Debian's Chromium, driven by Playwright; none is downloaded. Every page is watched: an uncaught error, an unhandled
rejection or a request to any other server fails the test at the end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, WebSocket, async_playwright, expect
from tests.processes import PATIENCE, token

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MS = PATIENCE * 1000
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 780},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}


@asynccontextmanager
async def chromium(**options: Any) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=installed(), args=list(FLAGS), **options)
        try:
            yield browser
        finally:
            await browser.close()


def installed() -> str:
    for name in ("chromium", "chromium-browser"):
        if program := shutil.which(name):
            return program
    if os.environ.get("CI") == "true":
        pytest.fail("Chromium is not installed")
    pytest.skip("Chromium is not installed")


class Person:
    """A user with their own browser profile. More pages are more tabs of it."""

    def __init__(self, context: BrowserContext, url: str, user: str) -> None:
        self.context = context
        self.url = url
        self.user = user
        self.sockets: list[WebSocket] = []
        self.requests: list[str] = []
        self.errors: list[str] = []
        context.set_default_timeout(MS)
        context.on("page", self._attend)
        context.on("request", lambda request: self.requests.append(request.url))

    def _attend(self, page: Page) -> None:
        page.on("websocket", lambda socket: self.sockets.append(socket))
        page.on("pageerror", lambda error: self.errors.append(f"{error.message}\n{error.stack}"))

    async def tab(self, hash_: str | None = None, *, clock: bool = False) -> Tab:
        """`clock`: the page's time can be moved."""
        page = await self.context.new_page()
        if clock:
            await page.clock.install()
        tab = Tab(self, page)
        await page.goto(f"{self.url}/#{urlencode({'user': self.user}) if hash_ is None else hash_}")
        return tab

    async def leave(self) -> None:
        cookies = await self.context.cookies()
        await self.context.close()
        assert not self.errors, self.errors
        assert not cookies, cookies
        elsewhere = [each for each in self.requests if urlsplit(each).netloc != urlsplit(self.url).netloc]
        assert not elsewhere, elsewhere


class Tab:
    def __init__(self, person: Person, page: Page) -> None:
        self.person = person
        self.page = page

    def at(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def row(self, user: str) -> Locator:
        return self.page.locator("#people").locator(f"[data-talk={_quoted(user)}]")

    async def is_connected(self) -> None:
        await expect(self.at("#banner")).to_be_hidden(timeout=MS)
        await expect(self.at("#my-line")).to_contain_text("vailable", timeout=MS)

    async def sees(self, user: str, status: str, *, stale: bool = False) -> None:
        dot = self.row(user).locator("green-dot")
        await expect(dot).to_have_attribute("status", status, timeout=MS)
        has = expect(dot).to_have_attribute if stale else expect(dot).not_to_have_attribute
        await has("stale", "", timeout=MS)

    async def reads(self, selector: str, text: str) -> None:
        await expect(self.at(selector)).to_contain_text(text, timeout=MS)

    async def reads_about(self, user: str, text: str) -> None:
        await expect(self.row(user)).to_contain_text(text, timeout=MS)

    async def choose(self, mode: str) -> None:
        await self.at(f"#modes [data-mode={mode}]").click()
        await expect(self.at(f"#modes [data-mode={mode}]")).to_have_attribute("aria-checked", "true", timeout=MS)

    async def talk_to(self, user: str) -> None:
        await self.row(user).click()
        await expect(self.row(user)).to_have_attribute("aria-current", "true", timeout=MS)

    async def types(self, seen: Locator, text: str) -> None:
        """Types key by key until the text is read at `seen`.

        Repeated because a late node (beside other tests) drops typing before anything else; a later key is delivered.
        """
        async with asyncio.timeout(PATIENCE):
            while text not in (await seen.text_content() or ""):
                await self.at("#text").press("x")

    async def record(self, user: str) -> Record:
        """Record every later state of that user's dot."""
        dot = await self.row(user).locator("green-dot").element_handle()
        return Record(
            await self.page.evaluate_handle(
                """(dot) => {
                  const look = () => dot.getAttribute("status") + (dot.hasAttribute("stale") ? " (stale)" : "");
                  const looks = [look()];
                  const changed = () => looks.at(-1) === look() || looks.push(look());
                  new MutationObserver(changed).observe(dot, { attributes: true });
                  return looks;
                }""",
                dot,
            )
        )

    async def close(self) -> None:
        await self.page.close()


class Record:
    def __init__(self, looks: Any) -> None:
        self._looks = looks

    async def looks(self) -> list[str]:
        value: list[str] = await self._looks.json_value()
        return value


def link(user: str, **claims: Any) -> str:
    """The fragment of the demo's address for users who are not the demo's own."""
    return urlencode({"user": user, "token": token(user, **claims)})


def _quoted(text: str) -> str:
    """Quoted as a CSS string."""
    return '"' + "".join(f"\\{ord(each):x} " for each in text) + '"'
