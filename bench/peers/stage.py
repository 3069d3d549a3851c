"""A running peer written in Python: its server on its core, with a Valkey that has the users of bulk reads."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import cache
from bench.peers.peer import PEOPLE, STATUS
from bench.redis import Store, valkey_server
from bench.server import SECRET, Server, free_port, process


@contextmanager
def python_server(runner: str, application: str, layer: str = "") -> Iterator[tuple[Server, Store]]:
    with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder, valkey_server() as store:
        value = json.dumps({name: value for name, value in STATUS.items() if name != "user_id"})
        for user in PEOPLE:
            store.client.set(f"status:{user}", value)
        port = free_port()
        environment = cache.python_environment(
            PEER_SECRET=SECRET, PEER_REDIS=store.url, PEER_LAYER=layer, PYTHONDONTWRITEBYTECODE="1"
        )
        command = [cache.interpreter(), "-m", runner, *_options(runner, port), application]
        with process(command, environment, Path(folder) / "server.log", port) as server:
            yield server, store


def _options(runner: str, port: int) -> list[str]:
    """Without access logs, so that only herenow pays for its log."""
    if runner == "daphne":
        return ["-b", "127.0.0.1", "-p", str(port), "-v", "0"]
    return ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--no-access-log"]
