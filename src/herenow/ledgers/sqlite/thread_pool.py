"""`ThreadPool`: runs blocking jobs in a few threads and passes the results to the event loop.

`run_in_executor` costs three times as much: it chains two kinds of future and takes half a dozen locks (measured: 25 µs of
CPU per round trip, here 8). A ledger query takes 10 µs, so the round trip dominates.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Work = Callable[[], Any]
Then = Callable[[Any, BaseException | None], None]
"""Called on the event loop with the result, or with None and the exception."""

_Job = tuple[Work, Then, asyncio.AbstractEventLoop]


class ThreadPool:
    def __init__(self, count: int, name: str, at_end: Callable[[], None]) -> None:
        """Create a pool of at most `count` threads, which are started when needed. Each calls `at_end` when it ends."""
        self._count = count
        self._name = name
        self._at_end = at_end
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def do(self, work: Work, then: Then) -> None:
        """Queue `work` for a thread, which then calls `then` with the result on the current event loop. Jobs start in
        the order queued. A thread is added only if all are busy, because each keeps a connection and its page cache."""
        self._busy += 1
        if len(self._threads) < min(self._busy, self._count):
            self._start()
        self._jobs.put((work, then, asyncio.get_running_loop()))

    def close(self) -> None:
        """Block until all queued jobs are done and the threads have ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        try:
            while self._do_next():
                pass
        finally:
            self._at_end()

    def _do_next(self) -> bool:
        """Wait for the next job of this thread and run it; return False if the pool is closed. Not part of the loop in
        `_serve`, whose locals would keep the last job alive."""
        job = self._jobs.get()
        if job is None:
            return False
        work, then, loop = job
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - passed to `then`
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._done, then, result, error)
        return True

    def _done(self, then: Then, result: object, error: BaseException | None) -> None:
        self._busy -= 1
        then(result, error)
