"""What does a process say of itself, and what do several say together?

Where several workers share an address, nobody can choose which of them answers a request. So whichever gets it asks for the
reports of all (`workers` carries them) and puts them together: numbers for Prometheus side by side, under a label `worker`;
numbers for people added up. Another thing that people want to know of all workers is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from herenow import __version__
from herenow.api.prometheus import metrics_of
from herenow.api.shapes import Count
from herenow.core.model import Status
from herenow.errors import Unavailable
from herenow.gateway.auth import Auth
from herenow.service.node import Node
from herenow.workers.link import Told


class Trouble(Struct, frozen=True):
    what: str
    detail: str


class Users(Struct, frozen=True):
    """In the whole store, as others see them."""

    online: Count
    busy: Count
    away: Count


class Beats(Struct, frozen=True):
    accepted: Count
    dropped: Count


class Stats(Struct, frozen=True):
    """Users are those of the whole store; everything else is this node's, all its workers together, counted since they
    started."""

    version: str
    workers: Count
    """Processes that answer for themselves here."""
    ready: bool
    draining: bool
    connections: Count
    streams: Count
    sessions: Count
    users: Users
    beats: Beats
    changes: Count
    deliveries: Count
    frames: Count
    ledger_backlog: Count
    degraded: tuple[Trouble, ...]


class _Family(Struct, frozen=True, array_like=True):
    """A metric of Prometheus."""

    name: str
    about: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


class Report(Struct, frozen=True):
    """Of one process."""

    stats: Stats
    families: list[_Family]


def report_of(node: Node, auth: Auth) -> bytes:
    """For whoever puts several together."""
    families = [
        _Family(m.name, m.documentation, m.type, [(s.name, dict(s.labels), s.value) for s in m.samples])
        for m in metrics_of(node)
    ]
    return msgspec.json.encode(Report(stats_of(node, auth), families))


# --- For people ------------------------------------------------------------------------------------------------------


def stats_of(node: Node, auth: Auth) -> Stats:
    counted = node.metrics
    users = Users(*(counted.users[status] for status in (Status.ONLINE, Status.BUSY, Status.AWAY)))
    return Stats(
        version=__version__,
        workers=1,
        ready=node.ready,
        draining=node.draining,
        connections=counted.connections,
        streams=counted.streams,
        sessions=counted.sessions,
        users=users,
        beats=Beats(counted.beats_accepted, counted.beats_dropped),
        changes=counted.changes,
        deliveries=counted.deliveries,
        frames=counted.frames,
        ledger_backlog=node.recorder.backlog,
        degraded=tuple(troubles(node, auth)),
    )


def stats_of_all(told: Sequence[Told]) -> Stats:
    """Raises `Unavailable` when no worker answers."""
    each = [report.stats for _, report in _reports(told)]
    if not each:
        raise Unavailable("No worker answers.")
    return Stats(
        version=each[0].version,
        workers=len(each),
        ready=all(stats.ready for stats in each),
        draining=any(stats.draining for stats in each),
        connections=sum(stats.connections for stats in each),
        streams=sum(stats.streams for stats in each),
        sessions=sum(stats.sessions for stats in each),
        users=each[0].users,
        beats=Beats(sum(stats.beats.accepted for stats in each), sum(stats.beats.dropped for stats in each)),
        changes=sum(stats.changes for stats in each),
        deliveries=sum(stats.deliveries for stats in each),
        frames=sum(stats.frames for stats in each),
        ledger_backlog=sum(stats.ledger_backlog for stats in each),
        degraded=tuple(_troubles_of_all(told, each)),
    )


def _troubles_of_all(told: Sequence[Told], each: Sequence[Stats]) -> Iterator[Trouble]:
    """Each kind once: workers of one machine mostly suffer the same."""
    silent = len(told) - len(each)
    if silent:
        yield Trouble("workers", f"{silent} of {len(told)} workers do not answer.")
    yield from {trouble.what: trouble for stats in each for trouble in stats.degraded}.values()


def troubles(node: Node, auth: Auth) -> Iterator[Trouble]:
    if auth.trouble is not None:
        yield Trouble("jwks", auth.trouble)
    if node.relations.trouble is not None:
        yield Trouble("ledger", node.relations.trouble)
    if node.recorder.is_late:
        yield Trouble(
            "ledger_backlog", f"{node.recorder.backlog} rows wait for the ledger, which does not take them."
        )
    if not node.relations.trusted:
        yield Trouble("relations", "The ledger cannot be read; nobody is taken to know anybody.")
    if not node.revocations.whole:
        yield Trouble(
            "revocations", "The ledger cannot be read; what was revoked through other nodes may be missed."
        )
    if node.relations_health.trouble is not None:
        yield Trouble("relations_source", node.relations_health.trouble)
    if node.hub.stale_shards:
        yield Trouble(
            "stale_shards", f"{node.hub.stale_shards} of {node.engine.shards} shards show what was."
        )
    if not node.standing.holds_lease:
        yield Trouble("lease", "The node could not renew its lease and decides nothing until it has.")


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
