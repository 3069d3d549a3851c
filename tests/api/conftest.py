"""One node serves all tests of a module; each test uses its own users. A test that needs another node creates one."""

import pytest_asyncio
from tests.api.world import serving


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world():
    async with serving() as world:
        yield world
