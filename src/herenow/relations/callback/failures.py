"""In which ways can an application fail to say who is related? The kinds are public: they label a metric.

unreachable   no connection, or one that broke off
timeout       no complete answer within the deadline
busy          too many questions wait already, or none of ours was sent within the deadline
resting       it failed several times in a row and is left alone for a moment
redirect      it sends us elsewhere; we do not go
refused       401 or 403: it does not accept the signature
status        any other status than 200
too_large     the answer is larger than any honest one
not_json      the answer is not JSON
shape         the answer is JSON of another shape than asked for
mismatch      the answer leaves out what was asked, or speaks of something else
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
"""It did not answer: asking again at once only makes things worse."""

WRONG = frozenset({"status", "too_large", "not_json", "shape", "mismatch"})
"""It did answer, but not usefully; perhaps because of one of the things asked."""


class Failed(Unavailable):
    """The application did not say; nobody is taken to be related."""

    def __init__(self, kind: str, sentence: str, *, away: bool | None = None) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.away = kind in AWAY if away is None else away

    @property
    def may_be_about_one(self) -> bool:
        """Asked about the others alone, it may well answer."""
        return self.kind in WRONG and not self.away
