"""Failures of the application, for operators: each one is counted, some are logged.

An application that is down fails thousands of times a second. So there is at most one log line per kind of failure in
`QUIET` seconds, with the number of failures that were not logged.
"""

from __future__ import annotations

from collections import Counter

import structlog

from herenow.ports import SourceHealth
from herenow.relations.callback.failures import Failed

QUIET = 10.0  # seconds between two log lines about the same kind of failure

log = structlog.get_logger(__name__)


class HealthReporter:
    def __init__(self, health: SourceHealth, *, silent: bool) -> None:
        self._health = health
        self._silent = silent
        self._logged: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def failed(self, failed: Failed, now: float) -> None:
        self._health.errors[failed.kind] += 1
        if failed.kind not in ("resting", "busy"):  # follow from earlier failures, which `trouble` names already
            self._health.trouble = f"The application gave no valid answer about relations ({failed.kind}): {failed}"
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
