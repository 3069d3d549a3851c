"""`SingleFlight`: concurrent callers that want the same thing share one attempt.

The first caller starts it; all callers until its end get its result or its error. It goes on if callers are cancelled, and
ends when `end` is called. For a moment after a failure all callers get that failure, without another attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from herenow.errors import Unavailable

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], name: str, pause: float) -> None:
        """Share one attempt at `work` among all callers. `name` is the name of its task. `pause`: seconds between a
        failure and the next attempt."""
        self._work = work
        self._name = name
        self._pause = pause
        self._task: asyncio.Task[T] | None = None
        self._failed: Unavailable | None = None
        self._again_at = float("-inf")

    async def __call__(self) -> T:
        loop = asyncio.get_running_loop()
        task = self._task
        if task is None:
            if self._failed is not None and loop.time() < self._again_at:
                raise type(self._failed)(*self._failed.args)
            task = self._task = loop.create_task(self._work(), name=self._name)
            task.add_done_callback(self._done)
        await asyncio.wait([task])
        if task.cancelled():
            raise Unavailable(f"{self._name} was cancelled")
        return task.result()

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[T]) -> None:
        self._task = self._failed = None
        error = None if task.cancelled() else task.exception()  # perhaps no caller is left to retrieve it
        if isinstance(error, Unavailable):
            self._failed = error
            self._again_at = task.get_loop().time() + self._pause
