"""The shapes of `GET /api/v1/stats` and of `GET /readyz`: the numbers that operators, the dashboard and `herenow top` read.

Types only, without the node: a command that decodes the answer of a server imports nothing of a server. `stats_collect`
fills them in for one process, `stats_merge` adds up those of several workers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from herenow.wire.answers import Count

Seconds = Annotated[float, Meta(ge=0)]
PerSecond = Annotated[float, Meta(ge=0)]


class Trouble(Struct, frozen=True):
    what: str
    """One word, for programs."""
    detail: str
    fix: str = ""
    """What to do."""


class UsersByStatus(Struct, frozen=True):
    """In the whole store, as others see them."""

    online: Count
    busy: Count
    away: Count


class Beats(Struct, frozen=True):
    accepted: Count
    dropped: Count


class Rates(Struct, frozen=True):
    """Per second, over the last ten."""

    changes: PerSecond = 0.0
    deliveries: PerSecond = 0.0
    frames: PerSecond = 0.0
    beats: PerSecond = 0.0
    refusals: PerSecond = 0.0
    conflicts: PerSecond = 0.0
    engine_errors: PerSecond = 0.0
    ledger_errors: PerSecond = 0.0


class DeliveryLatency(Struct, frozen=True):
    """From a change to a socket of somebody who watches, in seconds, over the last ten; without those who are told in waves.
    Null: nothing was delivered."""

    p50: Seconds | None = None
    p99: Seconds | None = None


class Process(Struct, frozen=True):
    """One process of this address."""

    worker: Count
    """Its number; 0 where there is only one."""
    restarts: Count
    """How often it had to be started again."""
    epoch: str
    """The name under which it writes to the store."""
    ready: bool
    draining: bool
    lease_held: bool
    """While not, it decides nothing."""
    lease_renewed_ago: Seconds | None
    connections: Count
    undecided: Count
    """Users whose decision waits for the store."""
    stale_shards: Count
    log_behind: Count
    """Changes of other nodes that were not read yet when it last compared."""
    log_heard_ago: Seconds
    """Since the logs last answered."""
    loop_late: Seconds
    """How late its event loop is, the worst of late."""
    gives_up: Count
    """What it gives up under overload: 0 nothing, 1 typing, 2 idleness, 3 text."""


class StoreMember(Struct, frozen=True):
    """A node that shares the store, by its lease."""

    epoch: str
    here: bool
    """It is a process of this address."""
    state: Literal["well", "overdue", "dead", "unknown"]
    """`overdue`: it has missed renewals. `dead`: others have taken over what it held. `unknown`: the store was away."""
    still_for: Seconds | None
    """Since it was last seen to renew its lease. It does so every third of `node_lease`, and is looked at as often."""


class TargetLoad(Struct, frozen=True):
    """Somebody whose changes cost much, under a name that only says that it is the same one."""

    target: str
    """A keyed hash: who it is cannot be found out from it."""
    viewers: Count
    deliveries: Count
    """In the last half minute to minute."""


class Point(Struct, frozen=True):
    """What happened in two seconds."""

    at: Count
    """When they began, in epoch milliseconds."""
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
    """Users are those of the whole store; everything else is this node's, all its workers together. Plain numbers are
    counted since they started."""

    version: str
    now: Count
    """Of the store's clock."""
    workers: Count
    """Processes that answer for themselves here."""
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
    """Open views that say that they are stale."""
    per_second: Rates
    delivery: DeliveryLatency
    refusals: dict[str, Count]
    """By code."""
    closes: dict[str, Count]
    """Of WebSockets, by close code."""
    processes: tuple[Process, ...]
    members: tuple[StoreMember, ...]
    """All nodes that share the store."""
    targets: tuple[TargetLoad, ...]
    """Whose changes were delivered most often of late."""
    degraded: tuple[Trouble, ...]
    history: tuple[Point, ...]
    """If asked for: up to five minutes, oldest first."""
