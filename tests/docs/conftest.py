"""A browser, a reader with an empty folder, and a server for pages that assume one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from tests.browser.stage import MS, chromium
from tests.docs import nginx
from tests.docs.reader import Reader, needs
from tests.docs.site import Site
from tests.processes import SECRET, Server, token

PUT = """([html, token]) => {
  globalThis.token = token;
  document.body.replaceChildren(document.createRange().createContextualFragment(html));
}"""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(f"guide {item.path.stem}"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def follow(tmp_path: Path) -> AsyncIterator[Callable[..., Reader]]:
    """`follow(8000, 9000)`: a reader; the ports are those named on the page."""
    needs("bash", "curl")
    readers: list[Reader] = []

    def begin(*ports: int, **settings: str) -> Reader:
        readers.append(Reader(tmp_path, *ports, settings=settings))
        return readers[-1]

    yield begin
    for reader in readers:
        await reader.end()


class Tabs:
    """Pages of one browser; an uncaught error is a failure."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.errors: list[str] = []
        self.opened: list[Page] = []

    async def open(self, url: str) -> Page:
        page = await self._new()
        await page.goto(url)
        return page

    async def show(self, site: Site, user: str, path: str = "/") -> Page:
        """Opens the page as a signed-in user."""
        page = await self._new()
        await page.context.add_cookies([{"name": "user", "value": user, "url": site.url}])
        await page.goto(site.url + path)
        return page

    async def put(self, reader: Reader, html: str, user: str) -> Page:
        """Puts HTML into a page of herenow's own origin, as behind a proxy."""
        page = await self.open(reader.server.url + "/healthz")
        await page.route("**/presence-token", lambda route: route.fulfill(body=token(user)))
        await page.evaluate(PUT, [html, token(user)])
        return page

    async def _new(self) -> Page:
        page = await self._browser.new_page()
        page.set_default_timeout(MS)
        page.on("pageerror", lambda error: self.errors.append(f"{error.message}\n{error.stack}"))
        self.opened.append(page)
        return page


@pytest_asyncio.fixture(loop_scope="module")
async def tabs(browser: Browser) -> AsyncIterator[Tabs]:
    opened = Tabs(browser)
    yield opened
    for page in opened.opened:
        await page.close()
    assert not opened.errors, opened.errors


@pytest_asyncio.fixture(loop_scope="module")
async def reader(follow: Callable[..., Reader], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Reader]:
    """A reader with a running server, a long dead_after, and a service token in the terminal."""
    reader = follow(8000, 9000, HERENOW_SECRET=SECRET, SERVICE=token("backend", "service"))
    settings = {"port": reader.ports[8000], "origins": reader.url(9000), "grace": 600, "dead_after": 600}
    reader.server = await Server(tmp_path_factory.mktemp("server"), settings).start()
    reader.environment["HERENOW_URL"] = reader.server.url
    yield reader
    await reader.end()
    await reader.server.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def site(reader: Reader) -> AsyncIterator[Site]:
    """The application at port 9000."""
    site = Site()
    await site.start(reader.ports[9000])
    yield site
    await site.stop()


@pytest.fixture
def with_nginx_at_hand() -> None:
    """Fails early if nginx is missing."""
    nginx.program()
