"""Threads in front of a blocking database: one hop per transaction.

SQLite blocks, so it lives in threads. A driver that hops once per call (aiosqlite makes about a dozen hops for a small
transaction) pays for each with a handover of the interpreter lock: measured, a one-row write takes 2.2 ms that way and
0.5 ms as one hop, beside a saturated event loop 270 ms to 10 s against 3 ms. It is also simpler to end, and a cancelled
caller leaves no transaction half done: what has begun in the thread comes to its end there.

A lane knows threads and an engine, not what is asked nor what the driver's errors mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, Engine

from herenow.errors import Unavailable

T = TypeVar("T")


class Lane:
    """Every piece of work gets a connection of the engine, in a transaction (what that means, the engine says)."""

    def __init__(self, engine: Engine, threads: int, name: str) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise Unavailable("The ledger is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._transact, work)

    async def close(self) -> None:
        """Let what is under way end, then close all connections."""
        self._closed = True
        await asyncio.to_thread(self._end)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _end(self) -> None:
        self._threads.shutdown(wait=True)
        self._engine.dispose()
