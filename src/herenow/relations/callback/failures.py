"""Kinds of failures of the application's callback. They are public: they label a metric.

unreachable   the connection failed or was lost
timeout       no complete response within the deadline
busy          too many keys are waiting, or the request was not sent within the deadline
resting       the circuit breaker is open after several failures in a row
redirect      the response is a redirect, which is not followed
refused       401 or 403: the signature was not accepted
status        any other status than 200
too_large     the response is larger than `MOST_BYTES`
not_json      the response is not JSON
shape         the response is JSON with an unexpected structure
mismatch      the response lacks a requested key, has an additional one, or contradicts itself
"""

from __future__ import annotations

from herenow.errors import Unavailable

KINDS = (
    "unreachable",
    "timeout",
    "busy",
    "resting",
    "redirect",
    "refused",
    "status",
    "too_large",
    "not_json",
    "shape",
    "mismatch",
)

AWAY = frozenset({"unreachable", "timeout"})
"""The application did not answer; an immediate retry would make things worse."""

INVALID = frozenset({"status", "too_large", "not_json", "shape", "mismatch"})
"""The application answered, but not usefully; a single key of the request may be the cause."""


class Failed(Unavailable):
    """The application did not answer usefully; the users in question count as unrelated."""

    def __init__(self, kind: str, sentence: str, *, away: bool | None = None) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.away = kind in AWAY if away is None else away

    @property
    def may_be_about_one(self) -> bool:
        """True if a single key of the request may be the cause of the failure, so that a request without it may succeed."""
        return self.kind in INVALID and not self.away
