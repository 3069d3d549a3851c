"""Is the node well, and what does it do? Answers for probes, Prometheus and operators.

`healthz`: the process lives. `readyz`: send it traffic; once ready it stays so and names what is degraded, because
taking a node out helps nobody when the store behind all of them is away. Numbers are for service tokens and for this
very machine. What is counted is said in `service.metrics`, how Prometheus gets it in `prometheus`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from starlette.responses import Response

from herenow import __version__
from herenow.api import peers
from herenow.api.answers import Reply, answered
from herenow.api.operations import Access, Answer, Media, Operation
from herenow.api.prometheus import exposition
from herenow.api.requests import Call
from herenow.api.shapes import Count
from herenow.core.model import Status
from herenow.errors import ProtocolError


class Health(Struct, frozen=True):
    status: str


class Trouble(Struct, frozen=True):
    what: str
    detail: str


class Readiness(Struct, frozen=True):
    status: str
    degraded: tuple[Trouble, ...]
    """Empty: all is well."""


class Users(Struct, frozen=True):
    """In the whole store, as others see them."""

    online: Count
    busy: Count
    away: Count


class Beats(Struct, frozen=True):
    accepted: Count
    dropped: Count


class Stats(Struct, frozen=True):
    """Users are those of the whole store; everything else is this node's, counted since it started."""

    version: str
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


async def health(_call: Call) -> Response:
    """GET /healthz"""
    return answered(Health("ok"))


async def readiness(call: Call) -> Response:
    """GET /readyz"""
    node = call.node
    if node.draining:
        raise ProtocolError("not_ready", "The node is draining.")
    if not node.ready:
        raise ProtocolError("not_ready", "The node is starting.")
    return answered(Readiness("ready", tuple(_troubles(call))))


async def metrics(call: Call) -> Response:
    """GET /metrics"""
    text, media = exposition(call.node, call.header("accept") or "")
    return Reply(text, media=media)


async def stats(call: Call) -> Response:
    """GET /stats"""
    node, counted = call.node, call.node.metrics
    users = Users(*(counted.users[status] for status in (Status.ONLINE, Status.BUSY, Status.AWAY)))
    return answered(
        Stats(
            version=__version__,
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
            degraded=tuple(_troubles(call)),
        )
    )


def is_local(call: Call) -> bool:
    return peers.is_local(call.peer, call.header_names)


def _troubles(call: Call) -> Iterator[Trouble]:
    node = call.node
    if call.auth.trouble is not None:
        yield Trouble("jwks", call.auth.trouble)
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


_NUMBERS = "For service tokens, and for loopback peers unless a forwarding header says that the request is not theirs."

OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        health,
        "Does the process live?",
        {200: Answer("Yes.", Health)},
        access=Access.ANYONE,
    ),
    Operation(
        "GET",
        "/readyz",
        readiness,
        "Should it get traffic?",
        {200: Answer("Yes, and what is degraded.", Readiness)},
        access=Access.ANYONE,
        codes=("not_ready",),
    ),
    Operation(
        "GET",
        "/metrics",
        metrics,
        "Numbers for Prometheus",
        {200: Answer("In Prometheus' text format.", str, Media.TEXT)},
        about=_NUMBERS,
        access=Access.OPERATOR,
    ),
    Operation(
        "GET",
        "/api/v1/stats",
        stats,
        "Numbers for people",
        {200: Answer("As of now.", Stats)},
        about=_NUMBERS,
        access=Access.OPERATOR,
    ),
)
