"""What can a viewer ask, and what can come by itself? One row for every operation and every frame there is.

A row is a case, which is asked for in both worlds again and again, or an exemption with its reason. `missing` names what
has neither: a new endpoint or frame that nobody has thought about fails the build. For an operation of their own, users
add a row to a copy of `CASES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

TARGET = "tea"
FRIEND, FAN, PAL, STRANGER, MATE = "friend", "fan", "pal", "stranger", "mate"
"""Viewers: mutual followers who watch by WebSocket, follow contacts and a room, watch by streams; nobody at all; a member
of the same room who is otherwise a stranger."""
NEIGHBOUR, GONE = "neighbour", "gone"
"""Contacts of every viewer beside whom the target is counted and ranked: one who stays, one who leaves after it hid."""
ROOM = "hall"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: object = None


@dataclass(frozen=True, slots=True)
class Case:
    """These requests, by each of the viewers, and by a service in each viewer's name."""

    requests: tuple[Request, ...]
    by_service: bool = False
    """Only a service may ask."""
    keep: Callable[[bytes], bytes] = bytes
    """The part of the answer that speaks of users."""


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
    "GET /api/v1/presence/stream": _get(),  # streams are opened by the play, before and after the hiding
    "DELETE /api/v1/presence/devices/{device}": Case(
        (Request("DELETE", f"{_API}/presence/devices/d1"),)  # the target's: nobody else's business
    ),
    "GET /api/v1/public/{user}": _get(f"{_API}/public/{TARGET}", f"{_API}/public/unknown"),
    "GET /api/v1/blocks": _get(f"{_API}/blocks"),
    "GET /api/v1/blocks/{user}": _get(f"{_API}/blocks/{TARGET}"),
    "PUT /api/v1/blocks/{user}": Exempt(
        "an answer without a body; what the caller sees of the other from then on is what the other cases ask for"
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
"""By method and path of the OpenAPI document."""

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
"""Every type a node sends, and where the play makes it appear."""


def missing(
    operations: Collection[str], frames: Collection[str], cases: Mapping[str, Case | Exempt] = CASES
) -> list[str]:
    """What exists and has no row here, and the other way round."""
    return sorted((set(operations) ^ set(cases)) | (set(frames) ^ set(FRAMES)))
