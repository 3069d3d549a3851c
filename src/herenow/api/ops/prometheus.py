"""Prometheus metrics, read from the node's plain counters at each scrape. Every field of `Metrics` is exported.

No label may contain a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from herenow import __version__
from herenow.core.model import Status
from herenow.node import Node
from herenow.node.metrics import BOUNDS, Histogram


def metrics_of(node: Node) -> list[Metric]:
    """Collect the metrics of the node, and those of its process (CPU, memory)."""
    return [*_NodeCollector(node).collect(), *ProcessCollector(registry=None).collect()]


def exposition(metrics: Sequence[Metric], accept: str) -> tuple[bytes, str]:
    """Encode metrics for Prometheus, in the newest format that `accept`, the Accept header, allows; in the plain one if
    the header is malformed. Returns (text, content type)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    try:
        encode, media = choose_encoder(accept)
    except Exception:  # noqa: BLE001 - its parser raises many kinds for a malformed header
        encode, media = choose_encoder("")
    return encode(registry), media


class _Collected(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


class _NodeCollector(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._labelled()
        counted = self._node.context.metrics
        yield _histogram(
            "herenow_delivery_seconds",
            "Time from a change to a viewer's socket, without paced deliveries.",
            counted.delivery_seconds,
        )
        yield _histogram(
            "herenow_wake_lag_seconds", "Delay of due timeouts until they were processed.", counted.wake_seconds
        )

    def _gauges(self) -> Iterator[Metric]:
        node, counted = self._node, self._node.context.metrics
        build = GaugeMetricFamily("herenow_build_info", "The running version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        for name, about, value in (
            ("connections", "Open WebSockets of this node.", counted.connections),
            ("streams", "Open event streams of this node.", counted.streams),
            ("sessions", "Sessions with a WebSocket of this node.", counted.sessions),
            ("ledger_backlog", "Rows that wait to be written to the database.", node.records.backlog),
            ("stale_shards", "Shards whose data on this node may be out of date.", node.delivery.stale_shards),
            (
                "unverified_shards",
                "Shards whose records this node must verify against the store; they are stale until then.",
                node.cluster.unverified_shards,
            ),
            ("stale_views", "Open views of this node that are flagged as stale.", node.delivery.stale_views),
            ("log_behind", "Unread changes of other nodes at the last check.", node.cluster.log_behind),
            (
                "log_silence_seconds",
                "Time since the logs of the live store were last read.",
                node.cluster.log_heard_ago,
            ),
            ("undecided_users", "Users whose new state waits to be written to the live store.", node.records.waiting),
            (
                "late_choices",
                "Users with a mode or custom status from the ledger that the store may lack.",
                len(node.context.people.late),
            ),
            (
                "ends_waiting",
                "Users who are shown offline only after every node could write its sessions.",
                node.records.ends_waiting,
            ),
            (
                "shards_ends_wait",
                "Shards that cannot be written, or could not until a moment ago: no user is shown offline in them.",
                node.context.authority.outages.shards_waiting,
            ),
            (
                "lease_held",
                "1 while this node holds its lease and may write status changes.",
                int(node.context.authority.holds_lease),
            ),
            ("paced_waiting", "Viewers that have not been sent a paced change yet.", node.delivery.paced_waiting),
            ("loop_late_seconds", "The greatest recent delay of the event loop.", node.delivery.overload.late),
            (
                "given_up_level",
                "What an overloaded node drops or delays: 0 nothing, 1 typing, 2 also idle changes, 3 also custom texts.",
                int(node.delivery.overload.level),
            ),
            ("ready", "1 while this node is ready for traffic.", int(node.ready)),
        ):
            yield GaugeMetricFamily(f"herenow_{name}", about, value=value)
        users = GaugeMetricFamily(
            "herenow_users", "Users in the whole live store, by the status that others see.", labels=["status"]
        )
        for status in (Status.ONLINE, Status.BUSY, Status.AWAY):
            users.add_metric([status.word], counted.users[status])
        yield users
        popular = GaugeMetricFamily(
            "herenow_popular_people",
            "Users with so many viewers on this node that their changes are paced, or not pushed.",
            labels=["delivery"],
        )
        for delivery, people in node.delivery.popular.items():
            popular.add_metric([delivery], people)
        yield popular

    def _counters(self) -> Iterator[Metric]:
        counted = self._node.context.metrics
        for name, about, value in (
            ("changes", "Visible status changes that this node wrote.", counted.changes),
            ("commits", "Batches written to the live store.", counted.commits),
            ("conflicts", "Writes that found the record changed meanwhile.", counted.conflicts),
            ("doubtful_commits", "Batches whose outcome was unknown at first.", counted.doubtful),
            ("deliveries", "Status values written to sockets.", counted.deliveries),
            ("frames", "Frames written to sockets.", counted.frames),
            ("typing", "Typing notices forwarded.", counted.typing),
            ("log_gaps", "Gaps found in the logs of the live store.", counted.log_gaps),
            ("shards_lost", "Times that a shard was found to have lost data.", counted.shards_lost),
            ("epochs", "Times that this node had to rejoin the live store with a new epoch.", counted.epochs),
            ("ledger_errors", "Failed calls of the database.", counted.ledger_errors),
            (
                "unknown_pairs",
                "Times that nothing was shown because the relation of two users could not be read.",
                counted.unknown_pairs,
            ),
            ("engine_errors", "Failed calls of the live store.", counted.engine_errors),
            ("accept_errors", "Connections that could not be accepted.", counted.accept_errors),
        ):
            yield CounterMetricFamily(f"herenow_{name}", about, value=value)

    def _labelled(self) -> Iterator[Metric]:
        counted = self._node.context.metrics
        beats = CounterMetricFamily("herenow_beats", "Heartbeats received.", labels=["outcome"])
        beats.add_metric(["accepted"], counted.beats_accepted)
        beats.add_metric(["dropped"], counted.beats_dropped)
        yield beats
        refusals = CounterMetricFamily("herenow_refusals", "Refused requests and frames.", labels=["code"])
        for code, times in sorted(counted.refusals.items()):
            refusals.add_metric([code], times)
        yield refusals
        shed = CounterMetricFamily("herenow_given_up", "Items delayed or dropped under overload.", labels=["kind"])
        for kind, times in sorted(counted.given_up.items()):
            shed.add_metric([kind], times)
        yield shed
        errors = CounterMetricFamily(
            "herenow_relations_errors", "Failed requests to the source of relations.", labels=["kind"]
        )
        for kind, times in sorted(self._node.relations_health.errors.items()):
            errors.add_metric([kind], times)
        yield errors
        closes = CounterMetricFamily("herenow_closes", "WebSockets closed.", labels=["code"])
        for close, times in sorted(counted.closes.items()):
            closes.add_metric([str(int(close))], times)
        yield closes
        for name, about, label, counts in (
            ("stream_ends", "Event streams that ended.", "code", counted.stream_ends),
            (
                "connections_refused",
                "Connections closed when they were accepted, by the limit that was reached.",
                "reason",
                counted.connections_refused,
            ),
            (
                "connections_cut",
                "Connections closed because their peer took too long, by what was awaited.",
                "reason",
                counted.connections_cut,
            ),
            (
                "reading_pauses",
                "Times that the node stopped reading from a client, by the limit that was reached.",
                "reason",
                counted.reading_pauses,
            ),
        ):
            family = CounterMetricFamily(f"herenow_{name}", about, labels=[label])
            for value, times in sorted(counts.items()):
                family.add_metric([value], times)
            yield family


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
    return HistogramMetricFamily(name, about, buckets=buckets, sum_value=histogram.sum)
