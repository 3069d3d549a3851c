"""What does an operator hear of an application that fails? A number for each failure, a line now and then.

A dead application fails thousands of times a second: a line per kind and `QUIET` says how often, the metric says the rest.
"""

from __future__ import annotations

from collections import Counter

import structlog

from herenow.ports import SourceHealth
from herenow.relations.callback.failures import Failed

QUIET = 10.0
"""Seconds between two lines about the same kind of failure."""

log = structlog.get_logger(__name__)


class Reports:
    def __init__(self, health: SourceHealth, *, silent: bool) -> None:
        self._health = health
        self._silent = silent
        self._logged: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def failed(self, failed: Failed, now: float) -> None:
        self._health.errors[failed.kind] += 1
        if failed.kind not in ("resting", "busy"):  # of what these come from, we have heard
            self._health.trouble = f"The application does not say who is related ({failed.kind}): {failed}"
        if self._may_log(failed.kind, now):
            unlogged = self._unlogged.pop(failed.kind, 0)
            log.warning("relations.failed", kind=failed.kind, error=str(failed), unlogged=unlogged)
        else:
            self._unlogged[failed.kind] += 1

    def answered(self, now: float) -> None:
        if self._health.trouble is not None:
            self._health.trouble = None
            if self._may_log("", now):
                log.info("relations.answered")

    def _may_log(self, kind: str, now: float) -> bool:
        last = self._logged.get(kind)
        if self._silent or (last is not None and now - last < QUIET):
            return False
        self._logged[kind] = now
        return True
