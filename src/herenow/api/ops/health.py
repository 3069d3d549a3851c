"""The endpoints `/healthz`, `/readyz`, `/metrics` and `/api/v1/stats`.

`readyz` stays ready when a store is away, and lists what is degraded: all nodes share the store, so taking one out of the
load balancer would not help. Metrics and statistics cover all workers of the port, because a client cannot choose which
worker answers.
"""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from herenow.api.description.operations import Access, Media, Operation, Parameter, ResponseDoc
from herenow.api.http.request import Call
from herenow.api.http.responses import Reply, json_response
from herenow.api.ops.degraded import find_troubles, without_addresses
from herenow.api.ops.prometheus import exposition, metrics_of
from herenow.api.ops.stats import Stats, Trouble
from herenow.api.ops.stats_collect import collect
from herenow.api.ops.stats_merge import merge, merge_metrics, merge_reports
from herenow.errors import ProtocolError
from herenow.wire.inputs import Scope

LATEST = 2**53
"""Epoch milliseconds. Every JSON parser reads integers up to this one exactly."""


class Health(Struct, frozen=True):
    status: str


class Readiness(Struct, frozen=True):
    status: str
    degraded: tuple[Trouble, ...]
    """Empty if nothing is degraded."""


async def health(_call: Call) -> Response:
    """GET /healthz: answer that the process runs."""
    return json_response(Health("ok"))


async def readiness(call: Call) -> Response:
    """GET /readyz: answer whether the node is ready for traffic, and list what is degraded."""
    node = call.node
    if node.draining:
        raise ProtocolError("not_ready", "The node is draining.")
    if not node.ready:
        raise ProtocolError("not_ready", "The node is starting.")
    troubles = tuple(find_troubles(call.node, call.auth))
    if troubles and not await call.is_operators():
        troubles = tuple(map(without_addresses, troubles))
    return json_response(Readiness("ready", troubles))


async def metrics(call: Call) -> Response:
    """GET /metrics: the metrics of all workers in a format of Prometheus."""
    if call.worker_reports is None:
        families = metrics_of(call.node)
    else:
        families = merge_metrics(await call.worker_reports())
    text, media = exposition(families, call.header("accept") or "")
    return Reply(text, media=media)


async def stats(call: Call) -> Response:
    """GET /stats: the statistics of all workers, with a history if the parameter `since` is given."""
    since = None if call.parameter("since") is None else call.number("since", 0, 0, LATEST)
    if call.worker_reports is None:
        own = collect(call.node, call.auth)
        return json_response(merge([own], own.degraded, since))
    return json_response(merge_reports(await call.worker_reports(), since))


_NUMBERS = (
    "Needs a service token, or a request from this machine: the peer and the host are loopback, and no "
    "header shows that a proxy forwarded it (with `trust_loopback = off` such a request needs a token, too). If there are "
    "several workers, the figures cover all of them."
)

OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        health,
        "Check that the process runs",
        {200: ResponseDoc("It runs.", Health)},
        access=Access.ANYONE,
    ),
    Operation(
        "GET",
        "/readyz",
        readiness,
        "Check that the node is ready for traffic",
        {200: ResponseDoc("It is ready; `degraded` lists its problems.", Readiness)},
        about="Addresses and file names in `degraded` are only for service tokens and requests from this machine.",
        access=Access.ANYONE,
        codes=("not_ready",),
    ),
    Operation(
        "GET",
        "/metrics",
        metrics,
        "Metrics for Prometheus",
        {200: ResponseDoc("The text format of Prometheus.", str, Media.TEXT)},
        about=_NUMBERS,
        access=Access.OPERATOR,
        scope=Scope.READ,
        codes=("unavailable",),
    ),
    Operation(
        "GET",
        "/api/v1/stats",
        stats,
        "Statistics for operators",
        {200: ResponseDoc("The current statistics.", Stats)},
        about=_NUMBERS,
        query=(
            Parameter(
                "since",
                "Add `history` after this time, in epoch milliseconds; 0: all that is kept.",
                {"type": "integer", "minimum": 0, "maximum": LATEST},
                codes=("bad_shape", "out_of_range"),
            ),
        ),
        access=Access.OPERATOR,
        scope=Scope.READ,
        codes=("unavailable",),
    ),
)
