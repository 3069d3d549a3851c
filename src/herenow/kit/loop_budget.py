"""So much work in one iteration of the event loop, and no more: the rest waits for the next iterations.

Work that arrives all at once (thousands of reconnecting clients, each with hundreds of subscriptions) takes seconds. Done
as it arrives, it is all ready in the same iteration of the loop, and nothing else runs until it is done: no lease is
renewed, no socket is read, and every time limit has passed when it is next looked at. With a budget, everything else in the
process gets its turn between two portions.

Work is admitted in the order in which it asked. While the budget lasts and nothing waits, it is admitted at once.
A coroutine asks with `take`, a plain function with `run`; both may be used on one budget.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class LoopBudget:
    __slots__ = ("_budget", "_on_error", "_spent", "_waiting")

    def __init__(self, budget: int, on_error: Callable[[Exception], object] | None = None) -> None:
        """`budget`: units of work per iteration. What a unit is, the caller decides. `on_error`: told what work that had
        to wait raised, while that error is handled; None: the loop's exception handler is told."""
        self._budget = budget
        self._on_error = on_error or _tell_loop
        self._spent = 0
        """In this iteration."""
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()
        """Units, and the function that starts the work; it returns False if nobody wants it any more."""

    async def take(self, units: int = 1) -> None:
        """Return when this much may be done; the caller does it before it next awaits. Work that is larger than the whole
        budget gets an iteration to itself."""
        if self._waiting or not self._has_room(units):
            admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((units, partial(_admit, admitted)))
            await admitted
        else:
            self._spend(units)

    def run(self, work: Callable[[], object], units: int = 1) -> None:
        """Call `work` now, or in a later iteration. What it raises later goes to `on_error`, and the work behind it is done
        all the same."""
        if self._waiting or not self._has_room(units):
            self._waiting.append((units, partial(_call, work)))
        else:
            self._spend(units)
            work()

    def finish(self) -> None:
        """Do everything that waits now, whatever it takes."""
        while self._waiting:
            self._start()

    def _has_room(self, units: int) -> bool:
        return not self._spent or self._spent + units <= self._budget

    def _spend(self, units: int) -> None:
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._next)
        self._spent += max(1, units)

    def _next(self) -> None:
        self._spent = 0
        while self._waiting and self._has_room(self._waiting[0][0]):
            units = self._waiting[0][0]
            if self._start():
                self._spend(units)

    def _start(self) -> bool:
        _, start = self._waiting.popleft()
        try:
            return start()
        except Exception as error:  # noqa: BLE001 - handed on
            self._on_error(error)
            return True


def _admit(admitted: asyncio.Future[None]) -> bool:
    if admitted.done():
        return False  # its task was cancelled while it waited
    admitted.set_result(None)
    return True


def _tell_loop(error: Exception) -> None:
    context = {"message": "work under a loop budget failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def _call(work: Callable[[], object]) -> bool:
    work()
    return True
