"""What does a process say of itself, and what do several say together?

Where several workers share an address, nobody can choose which of them answers a request. So whichever gets it asks for the
reports of all (`workers` carries them) and puts them together: numbers for Prometheus side by side, under a label `worker`;
numbers for people added up. One process is the same with a single report, so that there is one way to every number. Another
thing that people want to know of all workers is the reason to change this module.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from herenow import __version__
from herenow.api.ops.degraded import Trouble, troubles
from herenow.api.ops.prometheus import metrics_of
from herenow.api.shapes import Count
from herenow.core.model import Status
from herenow.errors import Unavailable
from herenow.node import Node
from herenow.node.admin.stats_history import COUNTED, STEP, Sample
from herenow.node.metrics import quantile
from herenow.transport.auth import Auth
from herenow.workers.link import Told

LATELY = 10_000
"""Milliseconds that "now" means for rates and latency."""

TARGETS = 10
"""How many of those whose changes cost most are told of."""

Seconds = Annotated[float, Meta(ge=0)]
PerSecond = Annotated[float, Meta(ge=0)]


class Users(Struct, frozen=True):
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


class Delivery(Struct, frozen=True):
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


class Target(Struct, frozen=True):
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
    users: Users
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
    delivery: Delivery
    refusals: dict[str, Count]
    """By code."""
    closes: dict[str, Count]
    """Of WebSockets, by close code."""
    processes: tuple[Process, ...]
    members: tuple[StoreMember, ...]
    """All nodes that share the store."""
    targets: tuple[Target, ...]
    """Whose changes were delivered most often of late."""
    degraded: tuple[Trouble, ...]
    history: tuple[Point, ...]
    """If asked for: up to five minutes, oldest first."""


class _Family(Struct, frozen=True, array_like=True):
    """A metric of Prometheus."""

    name: str
    about: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


class Own(Struct, frozen=True):
    """What one process says of itself."""

    version: str
    now: int
    node_lease: float
    streams: int
    sessions: int
    users: Users
    beats: Beats
    totals: dict[str, int]
    ledger_backlog: int
    stale_views: int
    refusals: dict[str, int]
    closes: dict[str, int]
    process: Process
    members: list[StoreMember]
    targets: list[Target]
    degraded: list[Trouble]
    slots: list[Sample]


class Report(Struct, frozen=True):
    """Of one process, for whoever puts several together."""

    own: Own
    families: list[_Family]


def report_of(node: Node, auth: Auth) -> bytes:
    families = [
        _Family(m.name, m.documentation, m.type, [(s.name, dict(s.labels), s.value) for s in m.samples])
        for m in metrics_of(node)
    ]
    return msgspec.json.encode(Report(_own(node, auth), families))


# --- For people ------------------------------------------------------------------------------------------------------


def stats_of(node: Node, auth: Auth, since: int | None = None) -> Stats:
    """With what happened after `since` (epoch milliseconds), if that is asked for."""
    own = _own(node, auth)
    return _together([own], own.degraded, since)


def stats_of_all(told: Sequence[Told], since: int | None = None) -> Stats:
    """Raises `Unavailable` when no worker answers."""
    restarts = {each.worker: each.restarts for each in told}
    each = []
    for worker, report in _reports(told):
        process = msgspec.structs.replace(report.own.process, worker=worker, restarts=restarts[worker])
        each.append(msgspec.structs.replace(report.own, process=process))
    if not each:
        raise Unavailable("No worker answers.")
    return _together(each, _troubles_of_all(told, each), since)


def _together(each: Sequence[Own], degraded: Iterable[Trouble], since: int | None) -> Stats:
    slots = _slots_together(slot for own in each for slot in own.slots)
    now = max(own.now for own in each)
    lately = [slot for slot in slots if slot.at > now - LATELY - STEP]
    totals = _added(own.totals for own in each)
    return Stats(
        version=each[0].version,
        now=now,
        workers=len(each),
        ready=all(own.process.ready for own in each),
        draining=any(own.process.draining for own in each),
        node_lease=each[0].node_lease,
        connections=sum(own.process.connections for own in each),
        streams=sum(own.streams for own in each),
        sessions=sum(own.sessions for own in each),
        users=each[0].users,
        beats=Beats(sum(own.beats.accepted for own in each), sum(own.beats.dropped for own in each)),
        **{name: totals.get(name, 0) for name in TOTALS},
        ledger_backlog=sum(own.ledger_backlog for own in each),
        stale_views=sum(own.stale_views for own in each),
        per_second=_rates(lately),
        delivery=_delivery(lately),
        refusals=_added(own.refusals for own in each),
        closes=_added(own.closes for own in each),
        processes=tuple(own.process for own in each),
        members=tuple(_members_of_all(each)),
        targets=tuple(_targets_of_all(each)),
        degraded=tuple(degraded),
        history=() if since is None else tuple(_point(slot) for slot in slots if slot.at > since),
    )


TOTALS = ("changes", "deliveries", "frames", "conflicts", "engine_errors", "ledger_errors")


def _own(node: Node, auth: Auth) -> Own:
    counted = node.context.metrics
    return Own(
        version=__version__,
        now=node.context.clock.now(),
        node_lease=node.context.settings.node_lease,
        streams=counted.streams,
        sessions=counted.sessions,
        users=Users(*(counted.users[status] for status in (Status.ONLINE, Status.BUSY, Status.AWAY))),
        beats=Beats(counted.beats_accepted, counted.beats_dropped),
        totals={name: getattr(counted, name) for name in TOTALS},
        ledger_backlog=node.records.backlog,
        stale_views=node.delivery.stale_views,
        refusals=dict(counted.refusals),
        closes={str(int(code)): times for code, times in counted.closes.items()},
        process=_process(node),
        members=list(_members(node)),
        targets=[_target(node, *each) for each in node.delivery.top_targets.top(TARGETS)],
        degraded=list(troubles(node, auth)),
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


# Who shares the store


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


def _members_of_all(each: Sequence[Own]) -> list[StoreMember]:
    """Each knows best of itself; of others, who saw them last."""
    found: dict[str, StoreMember] = {}
    for own in each:
        for member in own.members:
            known = found.get(member.epoch)
            if known is None or (member.here, -_age(member)) > (known.here, -_age(known)):
                found[member.epoch] = member
    return sorted(found.values(), key=lambda member: (not member.here, member.epoch))


def _age(member: StoreMember) -> float:
    return float("inf") if member.still_for is None else member.still_for


# Whose changes cost most


def _target(node: Node, user: str, deliveries: int) -> Target:
    """The key is the ledger's random id: all nodes have it, no answer carries it, and who can read it in the ledger reads
    the ids themselves there."""
    key = node.context.ledger.id.encode()[:64]
    name = hashlib.blake2b(user.encode(), key=key, digest_size=5, person=b"herenow target").hexdigest()
    return Target(name, node.delivery.viewers(user), deliveries)


def _targets_of_all(each: Sequence[Own]) -> list[Target]:
    viewers: Counter[str] = Counter()
    deliveries: Counter[str] = Counter()
    for target in (target for own in each for target in own.targets):
        viewers[target.target] += target.viewers
        deliveries[target.target] += target.deliveries
    return [Target(name, viewers[name], times) for name, times in deliveries.most_common(TARGETS)]


# Over time


def _slots_together(slots: Iterable[Sample]) -> list[Sample]:
    """One per moment: what processes did in it added up, as if all had looked for the same time. Users are everybody's."""
    by_time: defaultdict[int, list[Sample]] = defaultdict(list)
    for slot in slots:
        by_time[slot.at].append(slot)
    return [some[0] if len(some) == 1 else _slot_of_all(some) for _, some in sorted(by_time.items())]


def _slot_of_all(some: Sequence[Sample]) -> Sample:
    seconds = max(slot.seconds for slot in some)
    return Sample(
        at=some[0].at,
        seconds=seconds,
        **{name: sum(map(attrgetter(name), some)) for name in _ADDED},
        delivery=tuple(map(sum, zip(*(slot.delivery for slot in some), strict=True))),
        **{name: max(map(attrgetter(name), some)) for name in ("online", "busy", "away")},
    )


_ADDED = (*COUNTED, "connections", "ledger_backlog", "stale_views")


def _rates(slots: Sequence[Sample]) -> Rates:
    seconds = sum(slot.seconds for slot in slots)
    return (
        Rates(*(round(sum(map(attrgetter(name), slots)) / seconds, 3) for name in COUNTED))
        if seconds
        else Rates()
    )


def _delivery(slots: Sequence[Sample]) -> Delivery:
    if not slots:
        return Delivery()
    counts = [sum(each) for each in zip(*(slot.delivery for slot in slots), strict=True)]
    return Delivery(quantile(counts, 0.5), quantile(counts, 0.99))


def _point(slot: Sample) -> Point:
    rates, delivery = _rates([slot]), _delivery([slot])
    return Point(
        at=slot.at,
        connections=slot.connections,
        online=slot.online,
        busy=slot.busy,
        away=slot.away,
        ledger_backlog=slot.ledger_backlog,
        stale_views=slot.stale_views,
        changes=rates.changes,
        deliveries=rates.deliveries,
        refusals=rates.refusals,
        conflicts=rates.conflicts,
        p50=delivery.p50,
        p99=delivery.p99,
    )


def _added(each: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in each:
        total.update(counts)
    return dict(total)


def _troubles_of_all(told: Sequence[Told], each: Sequence[Own]) -> Iterator[Trouble]:
    """Each kind once: workers of one machine mostly suffer the same."""
    silent = len(told) - len(each)
    if silent:
        yield Trouble(
            "workers",
            f"{silent} of {len(told)} workers do not answer.",
            "They are starting, or hang; their supervisor replaces those that hang. The log says more.",
        )
    yield from {trouble.what: trouble for own in each for trouble in own.degraded}.values()


# --- For Prometheus --------------------------------------------------------------------------------------------------


def metrics_of_all(told: Sequence[Told]) -> list[Metric]:
    up = GaugeMetricFamily("herenow_worker_up", "1 while this worker answers.", labels=["worker"])
    restarts = CounterMetricFamily(
        "herenow_worker_restarts", "Times this worker had to be started again.", labels=["worker"]
    )
    for each in told:
        up.add_metric([str(each.worker)], int(each.body is not None))
        restarts.add_metric([str(each.worker)], each.restarts)
    together: dict[str, Metric] = {}
    for worker, report in _reports(told):
        for family in report.families:
            if family.name not in together:
                together[family.name] = Metric(family.name, family.about, family.kind)
            for name, labels, value in family.samples:
                together[family.name].add_sample(name, {**labels, "worker": str(worker)}, value)
    return [up, restarts, *together.values()]


def _reports(told: Sequence[Told]) -> Iterator[tuple[int, Report]]:
    for each in told:
        if each.body is not None:
            yield each.worker, msgspec.json.decode(each.body, type=Report)
