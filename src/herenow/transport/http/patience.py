"""Decides whether a peer takes too long to send or to read. The clock is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from herenow.transport.http.peer_limits import PeerLimits

What = Literal["head", "body", "answer", "idle"]


@dataclass(frozen=True, slots=True)
class Awaited:
    """The step that a connection waits for: the peer must send a head, a body or a request, or read an answer."""

    what: What
    which: int  # distinguishes successive heads, bodies and answers of a connection
    progress: int = 0  # bytes transferred so far


@dataclass(frozen=True, slots=True)
class Patience:
    """The time `since` which a connection waits for one step, with the progress at that time in `awaited`."""

    awaited: Awaited
    since: float

    def is_for(self, awaited: Awaited) -> bool:
        return (self.awaited.what, self.awaited.which) == (awaited.what, awaited.which)

    def is_over(self, awaited: Awaited, now: float, limits: PeerLimits, idle_within: float) -> bool:
        """Return True if the peer takes too long to send or read what the connection waits for (`awaited`). Bytes of a
        body or an answer extend its time; bytes of a head do not. `idle_within`: seconds until the next request must
        begin."""
        waited = now - self.since
        if awaited.what == "head":
            return waited > limits.head_within
        if awaited.what == "idle":
            return waited > idle_within
        passed = awaited.progress - self.awaited.progress
        return waited > limits.transfer_within + passed / limits.least_rate
