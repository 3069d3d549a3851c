"""Collect the statistics of one process, as values that `stats_merge` can add up.

If several workers share a port, each encodes a `ProcessReport`, and `workers` sends it to the worker that got the request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from herenow import __version__
from herenow.api.ops.degraded import find_troubles
from herenow.api.ops.prometheus import metrics_of
from herenow.api.ops.stats import Beats, Process, StoreMember, TargetLoad, Trouble, UsersByStatus
from herenow.core.model import Status
from herenow.node import Node
from herenow.node.admin import Sample
from herenow.transport.auth import Auth

TARGETS = 10
"""Reported users with the most deliveries."""

TOTALS = ("changes", "deliveries", "frames", "conflicts", "engine_errors", "ledger_errors")


class MetricFamily(Struct, frozen=True, array_like=True):
    """A Prometheus metric, encodable."""

    name: str
    about: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


class ProcessStats(Struct, frozen=True):
    version: str
    now: int
    node_lease: float
    streams: int
    sessions: int
    users: UsersByStatus
    beats: Beats
    totals: dict[str, int]
    ledger_backlog: int
    stale_views: int
    refusals: dict[str, int]
    closes: dict[str, int]
    process: Process
    members: list[StoreMember]
    targets: list[TargetLoad]
    degraded: list[Trouble]
    slots: list[Sample]


class ProcessReport(Struct, frozen=True):
    own: ProcessStats
    families: list[MetricFamily]


def encode_report(node: Node, auth: Auth) -> bytes:
    """Collect the statistics and metrics of this process, and encode them as a `ProcessReport`."""
    families = [
        MetricFamily(m.name, m.documentation, m.type, [(s.name, dict(s.labels), s.value) for s in m.samples])
        for m in metrics_of(node)
    ]
    return msgspec.json.encode(ProcessReport(collect(node, auth), families))


def collect(node: Node, auth: Auth) -> ProcessStats:
    counted = node.context.metrics
    return ProcessStats(
        version=__version__,
        now=node.context.clock.now(),
        node_lease=node.context.settings.node_lease,
        streams=counted.streams,
        sessions=counted.sessions,
        users=UsersByStatus(*(counted.users[status] for status in (Status.ONLINE, Status.BUSY, Status.AWAY))),
        beats=Beats(counted.beats_accepted, counted.beats_dropped),
        totals={name: getattr(counted, name) for name in TOTALS},
        ledger_backlog=node.records.backlog,
        stale_views=node.delivery.stale_views,
        refusals=dict(counted.refusals),
        closes={str(int(code)): times for code, times in counted.closes.items()},
        process=_process(node),
        members=list(_members(node)),
        targets=[_target(node, *each) for each in node.delivery.top_targets.top(TARGETS)],
        degraded=list(find_troubles(node, auth)),
        slots=node.admin.history.since(0),
    )


def _process(node: Node) -> Process:
    return Process(
        worker=0,
        restarts=0,
        epoch=node.context.authority.epoch,
        ready=node.ready,
        draining=node.draining,
        lease_held=node.context.authority.holds_lease,
        lease_renewed_ago=node.context.authority.renewed_ago,
        connections=node.context.metrics.connections,
        undecided=node.records.waiting,
        stale_shards=node.delivery.stale_shards,
        log_behind=node.cluster.log_behind,
        log_heard_ago=node.cluster.log_heard_ago,
        loop_late=node.delivery.overload.late,
        gives_up=int(node.delivery.overload.level),
    )


def _members(node: Node) -> Iterator[StoreMember]:
    lease = node.context.settings.node_lease
    own = node.context.authority.renewed_ago
    yield StoreMember(node.context.authority.epoch, here=True, state=_state(own, lease), still_for=own)
    for other in node.cluster.others:
        state = "dead" if other.dead else _state(other.still_for, lease)
        yield StoreMember(other.epoch, here=False, state=state, still_for=other.still_for)


def _state(still_for: float | None, lease: float) -> Literal["well", "overdue", "unknown"]:
    if still_for is None:
        return "unknown"
    return "well" if still_for <= lease * 2 / 3 else "overdue"


def _target(node: Node, user: str, deliveries: int) -> TargetLoad:
    """Return the statistics of a user whose changes cause many deliveries. The user is named by a keyed hash, the same
    on all nodes. The key is the ledger's random id, which no response contains; with access to the database, the user
    ids can be read anyway."""
    key = node.context.ledger.id.encode()[:64]
    name = hashlib.blake2b(user.encode(), key=key, digest_size=5, person=b"herenow target").hexdigest()
    return TargetLoad(name, node.delivery.viewers(user), deliveries)
