"""A budget of work per iteration of the event loop; the remaining work waits for the next iterations.

Work that arrives all at once (thousands of reconnecting clients, each with hundreds of subscriptions) takes seconds. Without
a budget all of it runs in one iteration, and nothing else does: no lease is renewed, no socket is read, all time limits
pass. Work is admitted in the order of requests: at once while the budget lasts and nothing waits. A coroutine requests with
`take`, a plain function with `run`; both may use one budget.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class LoopBudget:
    __slots__ = ("_budget", "_on_error", "_spent", "_waiting")

    def __init__(self, budget: int, on_error: Callable[[Exception], object] | None = None) -> None:
        """Allow `budget` units of work per iteration of the event loop; the caller defines a unit. `on_error` gets each
        exception of work that had to wait, and is called inside an `except` block; None: the loop's exception handler
        gets it."""
        self._budget = budget
        self._on_error = on_error or _report_to_loop
        self._spent = 0
        """Units done in this iteration."""
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()
        """Units of work, and the function that starts it; it returns False if the work was cancelled."""

    async def take(self, units: int = 1) -> None:
        """Wait until the budget has room for so many units of work, which the caller then does before it next awaits.
        Work larger than the budget gets an iteration of its own."""
        if self._waiting or not self._has_room(units):
            admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((units, partial(_admit, admitted)))
            await admitted
        else:
            self._spend(units)

    def run(self, work: Callable[[], object], units: int = 1) -> None:
        """Call `work` now, if the budget has room for its units, or in a later iteration. Errors of a later call go to
        `on_error` and stop no other work."""
        if self._waiting or not self._has_room(units):
            self._waiting.append((units, partial(_call, work)))
        else:
            self._spend(units)
            work()

    def finish(self) -> None:
        """Do all waiting work now, regardless of the budget."""
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


def _report_to_loop(error: Exception) -> None:
    context = {"message": "work under a loop budget failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def _call(work: Callable[[], object]) -> bool:
    work()
    return True
