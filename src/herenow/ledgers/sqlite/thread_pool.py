"""`ThreadPool`: a few threads that do what the event loop may not wait for, and hand it the results.

`run_in_executor` does the same for three times the price: beside the piece of work it makes a future of each kind, chains
one to the other, and takes half a dozen locks (measured: 25 µs of CPU for a way there and back, 8 this way). A question to
the ledger takes 10 µs to answer, so the way is most of what it costs.

Does not know what is done. What has begun comes to its end; what a process leaves behind that ends without `close` is
given up, as with a kill.
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
"""Called on the loop with what came of it, or why nothing did."""

_Job = tuple[Work, Then, asyncio.AbstractEventLoop]


class ThreadPool:
    def __init__(self, count: int, name: str, at_end: Callable[[], None]) -> None:
        """`at_end` is the last thing that each of them does."""
        self._count = count
        self._name = name
        self._at_end = at_end
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def do(self, work: Work, then: Then) -> None:
        """In the order asked, by whichever thread is free. There are no more than were ever needed at once: each keeps a
        connection, which keeps pages."""
        self._busy += 1
        if len(self._threads) < min(self._busy, self._count):
            self._start()
        self._jobs.put((work, then, asyncio.get_running_loop()))

    def close(self) -> None:
        """Blocks until all that was asked is done."""
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
        """A function of its own: between two jobs nothing of the last one is kept."""
        job = self._jobs.get()
        if job is None:
            return False
        work, then, loop = job
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the work was asked for
            error = raised
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._done, then, result, error)
        return True

    def _done(self, then: Then, result: object, error: BaseException | None) -> None:
        self._busy -= 1
        then(result, error)
