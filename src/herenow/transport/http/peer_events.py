"""Counts peers that exceed a limit, and logs them at most every ten seconds per kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog

from herenow.node.metrics import Metrics

QUIET = 10.0  # least seconds between two log lines of one kind

log = structlog.get_logger(__name__)


class PeerEvents:
    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._now = now
        self._logged: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def refused(self, reason: str, host: str) -> None:
        """Count and log that a connection of this host was closed as soon as it was accepted, because of a limit."""
        self._metrics.connections_refused[reason] += 1
        if self._may_log(f"refused {reason}"):
            log.warning("connection.refused", reason=reason, address=host, unlogged=self._skipped(f"refused {reason}"))

    def cut(self, reason: str) -> None:
        """Count and log that a connection was closed because its peer took too long."""
        self._metrics.connections_cut[reason] += 1
        if self._may_log(f"cut {reason}"):
            log.info("connection.cut", reason=reason, unlogged=self._skipped(f"cut {reason}"))

    def accept_failed(self, error: OSError) -> None:
        """Count and log that `accept` failed, mostly because descriptors ran out; the connection stays in the system's
        queue."""
        self._metrics.accept_errors += 1
        if self._may_log("accept"):
            log.error("accept.failed", error=str(error), unlogged=self._skipped("accept"))

    def _may_log(self, kind: str) -> bool:
        now, last = self._now(), self._logged.get(kind)
        if last is not None and now - last < QUIET:
            self._unlogged[kind] += 1
            return False
        self._logged[kind] = now
        return True

    def _skipped(self, kind: str) -> int:
        """Return and reset the number of events of this kind that were not logged."""
        return self._unlogged.pop(kind, 0)
