"""The objects that nearly every part of a node needs: settings, clock, counters, tasks, authority, known users, stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herenow.core.settle import Timings
from herenow.kit.clock import NodeClock
from herenow.kit.tasks import Tasks
from herenow.node.authority import Authority, new_epoch
from herenow.node.metrics import Metrics
from herenow.node.people import People
from herenow.node.user_rate import UserBudgets
from herenow.ports import Engine, Ledger
from herenow.settings import Settings, milliseconds

POLL = 0.5  # seconds: half of the time in which a time-out must be announced
BATCH = 25  # due users of one shard decided at a time; other changes are committed between two batches


@dataclass(frozen=True, slots=True)
class Reaping:
    shards: frozenset[int] | None = None  # shards in which this node decides due users; None: all
    poll: float = POLL  # seconds at most between two reads of the due users
    batch: int = BATCH
    first: bool = False  # True: a process that does nothing else; it precedes nodes that also serve clients


@dataclass(frozen=True, slots=True)
class Context:
    settings: Settings
    timings: Timings
    reaping: Reaping
    clock: NodeClock
    metrics: Metrics
    tasks: Tasks
    authority: Authority
    people: People
    budgets: UserBudgets
    engine: Engine
    ledger: Ledger


def make_context(
    engine: Engine,
    ledger: Ledger,
    settings: Settings,
    *,
    reaping: Reaping | None = None,
    clock: NodeClock | None = None,
    tasks: Tasks | None = None,
    make_epoch: Callable[[], str] = new_epoch,
) -> Context:
    clock = clock or NodeClock()
    return Context(
        settings=settings,
        timings=timings_of(settings),
        reaping=reaping or Reaping(None if settings.reap == "on" else frozenset()),
        clock=clock,
        metrics=Metrics(),
        tasks=tasks or Tasks(),
        authority=Authority(clock, settings.node_lease, make_epoch),
        people=People(engine.shards, clock),
        budgets=UserBudgets(clock),
        engine=engine,
        ledger=ledger,
    )


def timings_of(settings: Settings) -> Timings:
    return Timings(
        idle_after=milliseconds(settings.idle_after),
        dead_after=milliseconds(settings.dead_after),
        grace=milliseconds(settings.grace),
        online_delay=milliseconds(settings.online_delay),
        max_sessions=settings.max_sessions_per_user,
    )
