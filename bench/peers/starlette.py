"""A plain WebSocket endpoint with Starlette and `websockets` on uvicorn: what one writes without a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from bench.peers import cache
from bench.peers.peer import JsonServer, Looking, Peer, Talk
from bench.peers.stage import python_server


class Starlette(Peer):
    name = "starlette"
    does = (
        "Starlette and websockets on uvicorn (uvloop, httptools), one process: stamps beats in a dictionary, loops over "
        "a set of sockets for a change; no away, no grace, no rules who may look, and nothing beyond the one process"
    )
    differs: ClassVar[dict[str, str]] = {"lookup": "reads Redis by redis-py, whose CPU is not counted against it"}

    def missing(self) -> str | None:
        return cache.python_missing()

    def install(self) -> str:
        cache.install_python()
        return f"{cache.python_version('starlette')}, {cache.python_version('uvicorn')}"

    @contextmanager
    def serve(self, _people: Sequence[Looking]) -> Iterator[Talk]:
        with python_server("uvicorn", "starlette_app:app") as (server, store):
            yield JsonServer(server, lambda: store.cpu_seconds, ("get", "mget"))
