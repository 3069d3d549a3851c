"""Limits the closed connections that are processed per iteration of the event loop.

Processing a close takes 0.1 ms or more. If thousands come at once, one iteration would process all of them, and closes that
arrive meanwhile would be read only after it. Their reconnect windows would start, and users be reported offline, as much too
late. With a limit, the loop reads further closes between two portions.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.kit.loop_budget import LoopBudget

BUDGET = 25  # closes per iteration: about 2 ms of work, while an iteration reads up to a thousand closes

log = structlog.get_logger(__name__)


class CloseQueue:
    __slots__ = ("_budget",)

    def __init__(self) -> None:
        self._budget = LoopBudget(BUDGET, on_error=_log_failure)

    def take(self, depart: Callable[[], object]) -> None:
        """Call `depart`, which processes a closed connection, now or in a later iteration of the event loop, in the
        order of the calls."""
        self._budget.run(depart)

    def finish(self) -> None:
        """Call all callbacks that wait in this queue now."""
        self._budget.finish()


def _log_failure(_error: Exception) -> None:
    log.exception("departure.failed")  # the budget calls this while it handles the error
