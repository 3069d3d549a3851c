"""`Tasks` owns tasks: it keeps a reference to each, logs the error of one that fails, and cancels them all at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from herenow.errors import HerenowError

SHORTEST_PAUSE = 0.1
"""Seconds: the shortest pause after a failure."""

log = structlog.get_logger(__name__)


Create = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]


class Tasks:
    def __init__(self, create: Create | None = None) -> None:
        """Make tasks with `create(coroutine, name)`; None: on the running loop."""
        self._create = create or _create_on_running_loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self._create(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def every(
        self, seconds: float, work: Callable[[], Awaitable[object]], name: str, *, after_failure: float | None = None
    ) -> asyncio.Task[Any]:
        """Call `work` periodically in a task, whatever it raises: `seconds` from one start to the next, or at once after a
        call that took longer. After a failure the next call is `after_failure` seconds later, if that is sooner."""
        return self.spawn(self._repeat(seconds, after_failure, work, name), name)

    async def _repeat(
        self, seconds: float, after_failure: float | None, work: Callable[[], Awaitable[object]], name: str
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + seconds
            try:
                await work()
            except Exception as error:
                log.warning("task.failed", task=name, error=repr(error), exc_info=not _expected(error))
                sooner = due if after_failure is None else loop.time() + after_failure
                due = max(min(due, sooner), loop.time() + SHORTEST_PAUSE)
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def end(self) -> None:
        """Cancel all tasks and wait until they have ended, including tasks that they spawn meanwhile."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task.died", task=task.get_name(), error=repr(error), exc_info=error)


def _create_on_running_loop(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work, name=name)


def _expected(error: Exception) -> bool:
    return isinstance(error, HerenowError)
