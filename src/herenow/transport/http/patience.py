"""For how long has a peer been awaited, and is that too long? The clock is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from herenow.transport.http.peer_limits import PeerLimits

What = Literal["head", "body", "answer", "idle"]


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a connection needs from its peer to go on."""

    what: What
    which: int
    """Tells one head, body or answer of a connection from the next."""
    progress: int = 0
    """Bytes of it that have passed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Since when the same thing is awaited, and how much of it had passed by then."""

    awaited: Awaited
    since: float

    def is_for(self, awaited: Awaited) -> bool:
        return (self.awaited.what, self.awaited.which) == (awaited.what, awaited.which)

    def is_over(self, awaited: Awaited, now: float, limits: PeerLimits, idle_within: float) -> bool:
        """Whether the peer is late. Bytes of a head buy no time, those of a body or an answer do."""
        waited = now - self.since
        if awaited.what == "head":
            return waited > limits.head_within
        if awaited.what == "idle":
            return waited > idle_within
        passed = awaited.progress - self.awaited.progress
        return waited > limits.transfer_within + passed / limits.least_rate
