"""A circuit breaker: a service that does not answer is not called for a while, so that callers fail at once.

After some failures in a row the circuit is open: no call is allowed for a pause that doubles with every further failure.
After the pause one call is allowed as a trial. One success closes the circuit. The time is an argument, in seconds.
"""

from __future__ import annotations

from herenow.kit.retry import Backoff


class CircuitBreaker:
    def __init__(self, failures: int, backoff: Backoff) -> None:
        """Make a closed circuit that opens after this number of `failures` in a row. `backoff`: how long it stays open
        before each trial call."""
        self._limit = failures
        self._backoff = backoff
        self._failures = 0
        self._open_until = 0.0
        self._trial = False

    def allows(self, now: float) -> bool:
        """True if the service may be called now. The caller must then report `succeeded`, `failed` or `abandoned`."""
        if self._failures < self._limit:
            return True
        if self._trial or now < self._open_until:
            return False
        self._trial = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._trial = False

    def failed(self, now: float) -> None:
        self._trial = False
        self._failures += 1
        if self._failures >= self._limit:
            self._open_until = now + self._backoff.pause(self._failures - self._limit + 1)

    def abandoned(self) -> None:
        """Report that a call ended without showing whether the service works: it was cancelled, for instance."""
        self._trial = False
