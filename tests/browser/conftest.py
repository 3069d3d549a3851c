"""One browser and one demo server for all tests of a module; each test has its own users and removes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from tests.browser.stage import Person, chromium
from tests.processes import Server

Come = Callable[..., Awaitable[Person]]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A long grace: the test does not measure how fast this machine opens a page."""
    settings: dict[str, object] = {"dead_after": 5, "grace": 30}
    server = await Server(tmp_path_factory.mktemp("demo"), settings, "serve", "--demo").start()
    yield server
    await server.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def come(browser: Browser, demo: Server) -> AsyncIterator[Come]:
    """`await come("ana")`: a user with their own browser profile."""
    people: list[Person] = []

    async def person(user: str, **options: Any) -> Person:
        context = await browser.new_context(**options)
        people.append(Person(context, demo.url, user))
        return people[-1]

    yield person
    for each in people:
        await each.leave()
    for user in ("ana", "bo", "chen", "dara"):
        await demo.rest("PUT", "/presence/mode", user, service=False, mode="auto")
        await demo.rest("DELETE", "/presence/status", user, service=False)
        await demo.rest("POST", f"/users/{user}/disconnect")
