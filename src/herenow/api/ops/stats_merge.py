"""Merge the reports of all workers of a port: statistics are added up, Prometheus metrics get a label `worker`.

A client cannot choose which worker answers, so the worker that gets the request collects the reports of all. A single
process uses the same code with one report.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from herenow.api.ops.stats import Beats, DeliveryLatency, Point, Rates, Stats, StoreMember, TargetLoad, Trouble
from herenow.api.ops.stats_collect import TARGETS, TOTALS, ProcessReport, ProcessStats
from herenow.errors import Unavailable
from herenow.node.admin import COUNTED, STEP, Sample
from herenow.node.metrics import quantile
from herenow.workers.worker_link import Told

LATELY = 10_000
"""Milliseconds over which rates and latency are computed."""


def merge_reports(reports: Sequence[Told], since: int | None = None) -> Stats:
    """Add up the statistics of the workers that answered, with the history after `since` (epoch milliseconds) unless it
    is None. Raises `Unavailable` if no worker answered."""
    restarts = {each.worker: each.restarts for each in reports}
    each = []
    for worker, report in _decode_reports(reports):
        process = msgspec.structs.replace(report.own.process, worker=worker, restarts=restarts[worker])
        each.append(msgspec.structs.replace(report.own, process=process))
    if not each:
        raise Unavailable("No worker answers.")
    return merge(each, _merge_troubles(reports, each), since)


def merge(each: Sequence[ProcessStats], degraded: Iterable[Trouble], since: int | None = None) -> Stats:
    """Add up the statistics of processes, with the history after `since` (epoch milliseconds) unless it is None.
    `degraded`: the problems to list in the result."""
    slots = _merge_slots(slot for own in each for slot in own.slots)
    now = max(own.now for own in each)
    lately = [slot for slot in slots if slot.at > now - LATELY - STEP]
    totals = _sum_counts(own.totals for own in each)
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
        refusals=_sum_counts(own.refusals for own in each),
        closes=_sum_counts(own.closes for own in each),
        processes=tuple(own.process for own in each),
        members=tuple(_merge_members(each)),
        targets=tuple(_merge_targets(each)),
        degraded=tuple(degraded),
        history=() if since is None else tuple(_point(slot) for slot in slots if slot.at > since),
    )


def _merge_members(each: Sequence[ProcessStats]) -> list[StoreMember]:
    """List each node of the store once. A process reports best on itself; for another node, take the report of the
    process that saw it renew its lease most recently."""
    found: dict[str, StoreMember] = {}
    for own in each:
        for member in own.members:
            known = found.get(member.epoch)
            if known is None or (member.here, -_age(member)) > (known.here, -_age(known)):
                found[member.epoch] = member
    return sorted(found.values(), key=lambda member: (not member.here, member.epoch))


def _age(member: StoreMember) -> float:
    return float("inf") if member.still_for is None else member.still_for


def _merge_targets(each: Sequence[ProcessStats]) -> list[TargetLoad]:
    viewers: Counter[str] = Counter()
    deliveries: Counter[str] = Counter()
    for target in (target for own in each for target in own.targets):
        viewers[target.target] += target.viewers
        deliveries[target.target] += target.deliveries
    return [TargetLoad(name, viewers[name], times) for name, times in deliveries.most_common(TARGETS)]


def _merge_slots(slots: Iterable[Sample]) -> list[Sample]:
    """Merge the samples of all processes into one per time slot, oldest first. Counts are added up, but not those of
    users, because every process counts the users of the whole store."""
    by_time: defaultdict[int, list[Sample]] = defaultdict(list)
    for slot in slots:
        by_time[slot.at].append(slot)
    return [some[0] if len(some) == 1 else _sum_slots(some) for _, some in sorted(by_time.items())]


def _sum_slots(some: Sequence[Sample]) -> Sample:
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
    return Rates(*(round(sum(map(attrgetter(name), slots)) / seconds, 3) for name in COUNTED)) if seconds else Rates()


def _delivery(slots: Sequence[Sample]) -> DeliveryLatency:
    if not slots:
        return DeliveryLatency()
    counts = [sum(each) for each in zip(*(slot.delivery for slot in slots), strict=True)]
    return DeliveryLatency(quantile(counts, 0.5), quantile(counts, 0.99))


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


def _sum_counts(each: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in each:
        total.update(counts)
    return dict(total)


def _merge_troubles(reports: Sequence[Told], each: Sequence[ProcessStats]) -> Iterator[Trouble]:
    """Yield the problems of all workers, each kind once, because workers of one machine mostly have the same. The first
    is the number of workers that do not answer, if any."""
    silent = len(reports) - len(each)
    if silent:
        yield Trouble(
            "workers",
            f"{silent} of {len(reports)} workers do not answer.",
            "They are starting, or hang; the supervisor restarts those that hang. See the log.",
        )
    yield from {trouble.what: trouble for own in each for trouble in own.degraded}.values()


# --- For Prometheus --------------------------------------------------------------------------------------------------


def merge_metrics(reports: Sequence[Told]) -> list[Metric]:
    up = GaugeMetricFamily("herenow_worker_up", "1 while this worker answers.", labels=["worker"])
    restarts = CounterMetricFamily("herenow_worker_restarts", "Restarts of this worker.", labels=["worker"])
    for each in reports:
        up.add_metric([str(each.worker)], int(each.body is not None))
        restarts.add_metric([str(each.worker)], each.restarts)
    together: dict[str, Metric] = {}
    for worker, report in _decode_reports(reports):
        for family in report.families:
            if family.name not in together:
                together[family.name] = Metric(family.name, family.about, family.kind)
            for name, labels, value in family.samples:
                together[family.name].add_sample(name, {**labels, "worker": str(worker)}, value)
    return [up, restarts, *together.values()]


def _decode_reports(reports: Sequence[Told]) -> Iterator[tuple[int, ProcessReport]]:
    for each in reports:
        if each.body is not None:
            yield each.worker, msgspec.json.decode(each.body, type=ProcessReport)
