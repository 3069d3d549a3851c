"""How do many who want the same thing at the same time share one attempt?

Whoever comes first starts it; all who come meanwhile wait for it and get its result or its failure. It goes on when one of
them gives up, and ends when it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from herenow.errors import Unavailable

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        task = self._task
        if task is None:
            task = self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
            task.add_done_callback(self._done)
        await asyncio.wait([task])
        if task.cancelled():
            raise Unavailable(f"{self._name} was given up")
        return task.result()

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # whoever waited may be gone
