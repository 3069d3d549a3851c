"""Freeze or kill a simulated process, which is a set of tasks on a shared event loop.

A `Freezer` steps the coroutines of one simulated process. While frozen, none of them is resumed, but time goes on: results
arrive and deadlines pass, and the process finds all of that when it resumes, as after SIGSTOP and SIGCONT. A killed process
never resumes: its `finally` blocks do not run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from herenow.kit.notifier import Notifier


class Freezer:
    def __init__(self) -> None:
        self.frozen = False
        self.killed = False
        self._thaw = Notifier()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._missed: list[Callable[[], object]] = []

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work` as a task of the simulated process; in a killed process it does nothing."""
        if self.killed:
            work.close()
            work = _nothing()
        task = asyncio.get_running_loop().create_task(self._run(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._done(task, work))
        return task

    def _done(self, task: asyncio.Task[Any], work: Coroutine[Any, Any, Any]) -> None:
        self._tasks.discard(task)
        work.close()  # a task cancelled before its first step never awaited it
        if not task.cancelled():
            task.exception()  # retrieve it: the task that awaited this one may be dead

    def deliver(self, what: Callable[[], object]) -> None:
        """Call `what`, an input from outside the process: now; in a frozen process when it resumes, in order; in a
        killed process never."""
        if self.frozen:
            self._missed.append(what)
        else:
            what()

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self._thaw.notify()
        missed, self._missed = self._missed, []
        for what in missed:
            what()

    def kill(self) -> None:
        self.frozen = self.killed = True

    async def bury(self) -> None:
        """Cancel all tasks of the simulated process, also of a killed one. Call this at the end of a test."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        return await self._step(work)

    @coroutine
    def _step(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            while self.frozen:
                if self.killed and isinstance(error, asyncio.CancelledError):  # only `bury` ends a killed task
                    work.close()
                    raise error
                try:
                    yield from self._thaw.wait(math.inf).__await__()
                except asyncio.CancelledError as cancelled:
                    error = cancelled
            try:
                if error is None:
                    awaited = work.send(None)
                else:
                    thrown, error = error, None
                    awaited = work.throw(thrown)
            except StopIteration as stop:
                return stop.value
            try:
                yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - passed on, when it runs again
                error = thrown


async def _nothing() -> None:
    pass
