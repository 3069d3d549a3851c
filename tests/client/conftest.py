from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.processes import Server


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    servers: list[Server] = []

    async def start(**settings: object) -> Server:
        server = Server(tmp_path, settings)
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        if server.process is not None and server.process.returncode is None:
            await server.kill()
