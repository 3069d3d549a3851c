"""One node serves the tests of a module: each uses users of its own. A test that needs another node makes one."""

import pytest_asyncio
from tests.api.world import serving


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world():
    async with serving() as world:
        yield world
