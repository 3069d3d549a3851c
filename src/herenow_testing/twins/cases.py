"""The requests of viewers: one entry for every API operation and every frame type.

An entry is a case, which is requested repeatedly in both worlds, or an exemption with its reason. `missing` names
operations and frames without an entry, so that a new one fails the build. Applications add their own operations to a copy
of `CASES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

TARGET = "tea"
FRIEND, FAN, PAL, STRANGER, MATE = "friend", "fan", "pal", "stranger", "mate"
"""Viewers. Three mutual followers: one watches by WebSocket, one watches contacts and a room, one watches by streams. A
user without any relation. A member of the same room without other relations."""
NEIGHBOUR, GONE = "neighbour", "gone"
"""Contacts of every viewer, so that counts and rankings contain others: one stays, one leaves after the target hid."""
ROOM = "hall"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: object = None


@dataclass(frozen=True, slots=True)
class Case:
    """Requests to send as viewers, and as a service with `viewer=`."""

    requests: tuple[Request, ...]
    by_service: bool = False
    """Send them as a service without `viewer=` only."""
    keep: Callable[[bytes], bytes] = bytes
    """Extracts the part of the body to compare; `bytes`: the whole response with headers and duration."""


@dataclass(frozen=True, slots=True)
class Exempt:
    because: str


def _get(*paths: str) -> Case:
    return Case(tuple(Request("GET", path) for path in paths))


def _by_service(*paths: str, keep: Callable[[bytes], bytes] = bytes) -> Case:
    return Case(tuple(Request("GET", path) for path in paths), by_service=True, keep=keep)


def _users_in_stats(body: bytes) -> bytes:
    return b"".join(re.findall(rb'"users":{[^}]*}', body))


def _users_in_metrics(body: bytes) -> bytes:
    return b"\n".join(re.findall(rb"^herenow_users.*$", body, re.MULTILINE))


_API = "/api/v1"
_WRITES_OWN = Exempt("the answer repeats what the caller chose, and nothing else is read")
_WRITES_GRAPH = Exempt("a service writes the graph; the answer says no more than that it is written")
_OPERATORS = Exempt("the truth, for the operator's services alone, which may know it")
_ENDS = Exempt("a service ends something of a user's; the answer says no more than that it is done")
_ACTS_FOR = Exempt("a service acts for a user and is answered with that user's truth, which services may know")
_MADE_AT_START = Exempt("the same bytes for everybody, made before anybody came")
_BULK = f"{NEIGHBOUR},{TARGET},{GONE},unknown"

CASES: Mapping[str, Case | Exempt] = {
    "GET /api/v1/presence": _get(f"{_API}/presence?user_ids={TARGET}", f"{_API}/presence?user_ids={_BULK}"),
    "POST /api/v1/presence/query": Case((Request("POST", f"{_API}/presence/query", {"user_ids": _BULK.split(",")}),)),
    "GET /api/v1/presence/{user}": _get(f"{_API}/presence/{TARGET}"),
    "GET /api/v1/presence/count": _get(f"{_API}/presence/count"),
    "GET /api/v1/presence/leaderboard": _get(f"{_API}/presence/leaderboard", f"{_API}/presence/leaderboard?limit=1"),
    "GET /api/v1/presence/me": _get(f"{_API}/presence/me"),
    "GET /api/v1/presence/devices": _get(f"{_API}/presence/devices"),
    "GET /api/v1/presence/preferences": _get(f"{_API}/presence/preferences"),
    "GET /api/v1/presence/stream": _get(),  # `Play` opens streams itself, before and after the hiding
    "DELETE /api/v1/presence/devices/{device}": Case(
        (Request("DELETE", f"{_API}/presence/devices/d1"),)  # a device of the target: viewers get the same refusal
    ),
    "GET /api/v1/public/{user}": _get(f"{_API}/public/{TARGET}", f"{_API}/public/unknown"),
    "GET /api/v1/blocks": _get(f"{_API}/blocks"),
    "GET /api/v1/blocks/{user}": _get(f"{_API}/blocks/{TARGET}"),
    "PUT /api/v1/blocks/{user}": Exempt(
        "an answer without a body; a step of the histories, after which the other cases ask what the caller sees"
    ),
    "DELETE /api/v1/blocks/{user}": Case((Request("DELETE", f"{_API}/blocks/{TARGET}"),)),
    "GET /api/v1/explain": _OPERATORS,
    "GET /api/v1/users": _OPERATORS,
    "DELETE /api/v1/users/{user}": _ENDS,
    "POST /api/v1/users/{user}/disconnect": _ENDS,
    "POST /api/v1/users/{user}/revoke": _ENDS,
    "PUT /api/v1/presence/status": _WRITES_OWN,
    "DELETE /api/v1/presence/status": _WRITES_OWN,
    "PUT /api/v1/presence/mode": _WRITES_OWN,
    "PUT /api/v1/presence/preferences": _WRITES_OWN,
    "POST /api/v1/presence/heartbeat": Exempt("the answer repeats the caller's device and a setting"),
    "POST /api/v1/heartbeats": Exempt("a gateway is told which of its own beats were taken"),
    "PUT /api/v1/users/{user}/status": _ACTS_FOR,
    "DELETE /api/v1/users/{user}/status": _ACTS_FOR,
    "PUT /api/v1/users/{user}/mode": _ACTS_FOR,
    "DELETE /api/v1/users/{user}/mode": _ACTS_FOR,
    "PUT /api/v1/follows/{a}/{b}": _WRITES_GRAPH,
    "DELETE /api/v1/follows/{a}/{b}": _WRITES_GRAPH,
    "GET /api/v1/follows/{a}/{b}": _by_service(f"{_API}/follows/{FRIEND}/{TARGET}"),
    "PUT /api/v1/contacts/{a}/{b}": _WRITES_GRAPH,
    "DELETE /api/v1/contacts/{a}/{b}": _WRITES_GRAPH,
    "GET /api/v1/contacts/{a}/{b}": _by_service(f"{_API}/contacts/{FRIEND}/{TARGET}"),
    "PUT /api/v1/rooms/{room}/members/{user}": _WRITES_GRAPH,
    "DELETE /api/v1/rooms/{room}/members/{user}": _WRITES_GRAPH,
    "GET /api/v1/rooms/{room}/members/{user}": _by_service(f"{_API}/rooms/{ROOM}/members/{TARGET}"),
    "POST /api/v1/relations": _WRITES_GRAPH,
    "POST /api/v1/relations/changed": Exempt(
        "an application says that it has changed its mind; the answer says no more than that we heard it"
    ),
    "GET /healthz": _get("/healthz"),
    "GET /readyz": _get("/readyz"),
    "GET /metrics": _by_service("/metrics", keep=_users_in_metrics),
    "GET /api/v1/stats": _by_service(f"{_API}/stats", keep=_users_in_stats),
    "GET /openapi.json": _MADE_AT_START,
    "GET /docs": _MADE_AT_START,
}
"""Method and path as in the OpenAPI document → case or exemption."""

FRAMES: Mapping[str, str] = {
    "presence.welcome": "every viewer's first",
    "presence.self": "after it; a viewer's own",
    "presence.status": "single subscriptions and changes",
    "presence.statuses": "lists, contacts, conflated changes, snapshots of streams",
    "presence.subscribe.denied": "what the stranger gets",
    "presence.unsubscribed": "a late viewer's second thought",
    "presence.typing": "of the target before it hides, and of the neighbour",
    "presence.error": "a viewer who types to a stranger",
    "presence.ok": "a viewer who types to the target, and asks to be told",
}
"""Every frame type that a node sends → where it occurs in a run of `Play`."""


def missing(
    operations: Collection[str], frames: Collection[str], cases: Mapping[str, Case | Exempt] = CASES
) -> list[str]:
    """List the operations and frame types without an entry in `cases` and `FRAMES`, and entries for unknown ones."""
    return sorted((set(operations) ^ set(cases)) | (set(frames) ^ set(FRAMES)))
