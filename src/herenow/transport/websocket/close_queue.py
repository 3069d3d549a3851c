"""When thousands of connections close at once, their ends are processed a few per turn of the event loop.

An end takes a tenth of a millisecond or more to note, to decide and to write. Done as they come, all that were read together
are done in one turn of the loop, and whoever goes meanwhile is read, and taken for gone, only after that. Grace counts from
there, so they would be announced as much too late. In portions, the loop reads between two of them who else has gone.

A few ends are done at once. This module does not know what an end consists of.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.kit.loop_budget import LoopBudget

BUDGET = 25
"""Ends per iteration of the loop: about two milliseconds of work, while an iteration reads up to a thousand closes."""

log = structlog.get_logger(__name__)


class CloseQueue:
    """Runs callbacks in order, at most `BUDGET` per iteration of the event loop."""

    __slots__ = ("_budget",)

    def __init__(self) -> None:
        self._budget = LoopBudget(BUDGET, on_error=_log_failure)

    def take(self, depart: Callable[[], object]) -> None:
        """Called now, or at its turn: in the order in which they came."""
        self._budget.run(depart)

    def finish(self) -> None:
        """All that wait, now: nobody is there any more to wait for."""
        self._budget.finish()


def _log_failure(_error: Exception) -> None:
    log.exception("departure.failed")  # the budget calls this while it handles the error
