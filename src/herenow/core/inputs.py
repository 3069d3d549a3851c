"""What `settle` takes: the timings that give a status its meaning, what a node holds, and what a user asked for.

Values only. Another fact that the meaning of a status depends on is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herenow.core.model import Platform, Presence
from herenow.core.values import Value


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings that give a status its meaning, in milliseconds, and the cap on sessions of one user."""

    idle_after: int = 300_000
    dead_after: int = 90_000
    grace: int = 30_000
    online_delay: int = 0
    max_sessions: int = 50


class Held(Value, frozen=True):
    """What a node truly knows of one session it holds, or has just lost. Fresher than the record."""

    device: str
    holder: str
    """The node's present epoch, or UNLEASED for a REST beat it received."""
    since: int
    """When this connection (or series of beats) began; a device that comes back is a new one."""
    seen_at: int
    active_at: int = 0
    """0: the person has not acted since connecting."""
    platform: Platform = Platform.OTHER
    idle: bool = False
    """The device said that it is idle, after `active_at`."""
    lost_at: int | None = None
    asserted: int = 0
    """The version of the record in which this session last stood; 0: never yet."""
    asserted_by: str = ""
    """The epoch it stood there under, which may be an earlier one of this node."""
    idle_at: int | None = None
    """When the device said that it is idle. None: not known, and taken to be later than any activity in the record."""


Edit = Callable[[Presence, int, Timings], Presence]
"""What somebody asked for, as a function of the record. It may be applied twice (after a commit of unknown outcome),
so applying it again must change nothing."""
