"""One server process for all tests of a module; each test has its own users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio
from tests.processes import Server

_numbers = count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder: Path = tmp_path_factory.mktemp("server")
    started = await Server(folder, {"dead_after": 3, "grace": 3, "poll_every": 0}).start()
    yield started
    await started.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def people(server: Server) -> tuple[str, str]:
    """Two users who follow each other."""
    number = next(_numbers)
    names = (f"ana{number}", f"bo{number}")
    await server.befriend(*names)
    return names
