"""The shapes of `GET /api/v1/stats`, also read by the dashboard and `herenow top`.

Types only, so that a command can decode them without loading a server. Docstrings of classes are in the OpenAPI document.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from herenow.wire.answers import Count

Seconds = Annotated[float, Meta(ge=0)]
PerSecond = Annotated[float, Meta(ge=0)]


class Trouble(Struct, frozen=True):
    what: str
    """A stable word for programs."""
    detail: str
    fix: str = ""
    """Advice to the operator."""


class UsersByStatus(Struct, frozen=True):
    """Users in the whole live store, by the status that others see."""

    online: Count
    busy: Count
    away: Count


class Beats(Struct, frozen=True):
    accepted: Count
    dropped: Count


class Rates(Struct, frozen=True):
    """Events per second, averaged over the last ten seconds."""

    changes: PerSecond = 0.0
    deliveries: PerSecond = 0.0
    frames: PerSecond = 0.0
    beats: PerSecond = 0.0
    refusals: PerSecond = 0.0
    conflicts: PerSecond = 0.0
    engine_errors: PerSecond = 0.0
    ledger_errors: PerSecond = 0.0


class DeliveryLatency(Struct, frozen=True):
    """Seconds from a change to a viewer's socket, over the last ten seconds, without changes of users with so many viewers
    that their delivery is paced. Null: nothing was delivered."""

    p50: Seconds | None = None
    p99: Seconds | None = None


class Process(Struct, frozen=True):
    """One worker process of this server."""

    worker: Count
    """Number of the worker; 0 if there is only one process."""
    restarts: Count
    epoch: str
    """The id under which it writes to the store."""
    ready: bool
    draining: bool
    lease_held: bool
    """Without a lease it may not commit records."""
    lease_renewed_ago: Seconds | None
    connections: Count
    undecided: Count
    """Users whose new state waits to be committed."""
    stale_shards: Count
    log_behind: Count
    """Unread changes of other nodes at the last check."""
    log_heard_ago: Seconds
    """Since the last answer to a read of the shard logs."""
    loop_late: Seconds
    """The greatest recent delay of its event loop."""
    gives_up: Count
    """Traffic dropped or delayed under overload: 0 nothing, 1 typing, 2 also idle changes, 3 also custom texts."""


class StoreMember(Struct, frozen=True):
    """A node that has a lease in the same live store."""

    epoch: str
    here: bool
    """It is a worker of this server."""
    state: Literal["well", "overdue", "dead", "unknown"]
    """`overdue`: it missed renewals. `dead`: other nodes have taken over its sessions. `unknown`: the store was away."""
    still_for: Seconds | None
    """Since we last saw it renew its lease. Both the renewal and our check happen every third of `node_lease`."""


class TargetLoad(Struct, frozen=True):
    """A user whose changes cause many deliveries, under a pseudonym."""

    target: str
    """A keyed hash of the user's id."""
    viewers: Count
    deliveries: Count
    """In the last 30 to 60 seconds."""


class Point(Struct, frozen=True):
    """The figures of two seconds."""

    at: Count
    """Start, in epoch milliseconds."""
    connections: Count
    online: Count
    busy: Count
    away: Count
    ledger_backlog: Count
    stale_views: Count
    changes: PerSecond
    deliveries: PerSecond
    refusals: PerSecond
    conflicts: PerSecond
    p50: Seconds | None
    p99: Seconds | None


class Stats(Struct, frozen=True):
    """`users` and `members` cover the whole live store, everything else all workers of this server. Plain numbers are
    counted since the start."""

    version: str
    now: Count
    """Epoch milliseconds of the store's clock."""
    workers: Count
    """Worker processes that answered."""
    ready: bool
    draining: bool
    node_lease: Seconds
    connections: Count
    streams: Count
    sessions: Count
    users: UsersByStatus
    beats: Beats
    changes: Count
    deliveries: Count
    frames: Count
    conflicts: Count
    engine_errors: Count
    ledger_errors: Count
    ledger_backlog: Count
    stale_views: Count
    """Open views that are flagged as stale."""
    per_second: Rates
    delivery: DeliveryLatency
    refusals: dict[str, Count]
    """By error code."""
    closes: dict[str, Count]
    """Closed WebSockets, by close code."""
    processes: tuple[Process, ...]
    members: tuple[StoreMember, ...]
    """All nodes that share the store."""
    targets: tuple[TargetLoad, ...]
    """The users whose changes were delivered most often."""
    degraded: tuple[Trouble, ...]
    history: tuple[Point, ...]
    """With the parameter `since`: up to five minutes, oldest first."""
