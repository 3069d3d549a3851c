"""The inputs of `settle`: timings, the sessions that a node holds, edits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herenow.core.model import Platform, Presence
from herenow.core.values import Value


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings that define a status, in milliseconds, and the maximum number of sessions of a user."""

    idle_after: int = 300_000
    dead_after: int = 90_000
    grace: int = 30_000
    online_delay: int = 0
    max_sessions: int = 50


class Held(Value, frozen=True):
    """A session that a node holds, or has lost since the last commit. Fresher than the record."""

    device: str
    holder: str
    """The node's present epoch, or UNLEASED for a REST heartbeat it received."""
    since: int
    """When this connection (or series of heartbeats) began; a device that comes back begins anew."""
    seen_at: int
    active_at: int = 0
    """0: no activity since connecting."""
    platform: Platform = Platform.OTHER
    idle: bool = False
    """The device reported that it is idle, after `active_at`."""
    lost_at: int | None = None
    asserted: int = 0
    """Version of the record that last contained this session as live; 0: unknown, or not committed yet."""
    asserted_by: str = ""
    """Epoch under which it was committed, perhaps an earlier one of this node; empty: never."""
    idle_at: int | None = None
    """When the device reported that it is idle. None: unknown, and taken to be later than any recorded activity."""


Edit = Callable[[Presence, int, Timings], Presence]
"""A requested change, as a function of (record, now, timings). Idempotent: it is repeated after an unknown outcome."""
