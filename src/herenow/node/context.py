"""The objects that nearly every part of a node needs: settings, clock, counters, tasks, authority, known users, stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from herenow.core.limits import FanoutLimits, Rate
from herenow.core.settle import Timings
from herenow.kit.clock import NodeClock
from herenow.kit.tasks import Tasks
from herenow.node.authority import Authority, new_epoch
from herenow.node.metrics import Metrics
from herenow.node.people import People
from herenow.ports import Engine, Ledger

POLL = 0.5
"""Seconds. Half of the time that may pass between an end and its announcement."""

BATCH = 25
"""Users of one shard at a time: unrelated changes get their turn between two batches."""


@dataclass(frozen=True, slots=True)
class Reaping:
    """Which due users this node handles."""

    shards: frozenset[int] | None = None
    """None: those of all shards; empty: none at all."""
    poll: float = POLL
    """Seconds at most between two looks at the store."""
    batch: int = BATCH
    first: bool = False
    """True: a process that does nothing else. Nodes that also serve clients come after it in the order."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of a node. Durations are in seconds unless stated otherwise."""

    timings: Timings = field(default_factory=Timings)
    node_lease: float = 10.0
    beat_min: int = 5_000
    """Milliseconds."""
    typing_for: float = 6.0
    typing_min: float = 2.0
    stuck_after: float = 10.0
    flush_every: float = 0.0
    """0: the flush interval adapts itself."""
    crowds: FanoutLimits = field(default_factory=FanoutLimits)
    ledger_flush: float = 1.0
    max_subscriptions: int = 500
    max_connections_per_user: int = 20
    token_max_ttl: float = 86_400.0
    """The longest validity of a token, and so the time for which a revocation is kept."""
    rooms_relate: bool = False
    """True: members of a room may see each other."""
    polling: Rate = field(default_factory=lambda: Rate(every=30_000, burst=5))
    """Limit of bulk reads by users without a live session."""
    relations_ttl: float | None = None
    """Validity of a relation that the application reported; None: the ledger keeps relations and announces changes."""
    reaping: Reaping = field(default_factory=Reaping)
    embedded: bool = True
    """True: the engine ends with this process, so the ledger must know which users were online."""


@dataclass(frozen=True, slots=True)
class Context:
    settings: NodeSettings
    clock: NodeClock
    metrics: Metrics
    tasks: Tasks
    authority: Authority
    people: People
    engine: Engine
    ledger: Ledger

    @property
    def timings(self) -> Timings:
        return self.settings.timings


def make_context(
    engine: Engine,
    ledger: Ledger,
    settings: NodeSettings,
    *,
    clock: NodeClock | None = None,
    tasks: Tasks | None = None,
    make_epoch: Callable[[], str] = new_epoch,
) -> Context:
    clock = clock or NodeClock()
    return Context(
        settings=settings,
        clock=clock,
        metrics=Metrics(),
        tasks=tasks or Tasks(),
        authority=Authority(clock, settings.node_lease, make_epoch),
        people=People(engine.shards, clock),
        engine=engine,
        ledger=ledger,
    )
