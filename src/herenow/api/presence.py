"""Who is here? Reading presences: one, many, one's own, one's contacts counted or ranked.

Everything that is read comes from `node.views`, which shows each viewer what they may see; the bytes are those of the
WebSocket. Here ids are collected and answers put together. A new question about presence is the reason to change this.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from herenow.api.answers import already_json, answered, listed
from herenow.api.bodies import Decoder
from herenow.api.operations import Answer, Body, Operation, Parameter
from herenow.api.requests import Call, user_id
from herenow.api.shapes import ID_SCHEMA, Counts, Leaderboard, Myself, Status, UserIds
from herenow.errors import ProtocolError

FRIENDS = 50
"""Entries of a leaderboard that does not say how many it wants."""

RESERVED = frozenset({"stream"})
"""Fixed words of the contract that this version does not answer: they are no ids in a path either."""

_user_ids = Decoder(UserIds, 'an object {"user_ids": […]}')


async def read_many(call: Call) -> Response:
    """GET /presence?user_ids=a,b,c"""
    given = call.parameters("user_ids")
    if not given:
        raise ProtocolError("bad_shape", "The parameter user_ids is missing: ids separated by commas.")
    text = ",".join(given)
    return await _many(call, text.split(",") if text else [])


async def query(call: Call) -> Response:
    """POST /presence/query: the same for lists that no address can hold."""
    return await _many(call, (await call.body(_user_ids)).user_ids)


async def _many(call: Call, ids: Sequence[object]) -> Response:
    users = _distinct(ids, call.settings.max_bulk)
    return already_json(listed(await call.node.views.statuses(call.viewer, users)))


def _distinct(ids: Sequence[object], most: int) -> list[str]:
    """In the order asked, each at its first occurrence."""
    if len(ids) > most:
        raise ProtocolError("too_many_ids", f"One request may ask for {most} ids; this one has {len(ids)}.")
    if "" in ids:
        raise ProtocolError("empty_item", "The list of ids has an empty item.")
    return list(dict.fromkeys(map(user_id, ids)))


async def read_one(call: Call) -> Response:
    """GET /presence/{user}"""
    user = call.path_user()
    if user in RESERVED:
        raise ProtocolError("not_found", f"This version has no /api/v1/presence/{user}.")
    [status] = await call.node.views.statuses(call.viewer, [user])
    return already_json(status)


async def read_me(call: Call) -> Response:
    """GET /presence/me"""
    return already_json(await call.node.views.me(call.myself))


async def count(call: Call) -> Response:
    """GET /presence/count"""
    return answered(await call.node.views.count(call.myself))


async def leaderboard(call: Call) -> Response:
    """GET /presence/leaderboard"""
    most = call.settings.max_bulk
    limit = call.number("limit", min(FRIENDS, most), 1, most)
    friends = await call.node.views.leaderboard(call.myself, limit)
    return already_json(b'{"friends":' + listed(friends) + b"}")


VIEWER = Parameter(
    "viewer",
    "For service tokens: answer exactly what this user would get. Without it a service reads the truth.",
    ID_SCHEMA,
    codes=("forbidden", "invalid_user_id"),
)
_LIMIT = Parameter(
    "limit",
    "How many at the most: 1 to `max_bulk`.",
    {"type": "integer", "minimum": 1, "default": FRIENDS},
    codes=("out_of_range",),
)
_IDS = Parameter(
    "user_ids",
    "Ids separated by commas; empty for none. Longer lists than an address can hold go to `POST /presence/query`.",
    {"type": "string"},
    required=True,
    codes=("empty_item", "too_many_ids", "invalid_user_id"),
)
_MANY = Answer("In the order asked, each user once.", list[Status])

OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/presence",
        read_many,
        "Presence of several users",
        {200: _MANY},
        about="Nobody related, an unknown id and a deleted one answer alike: offline, never seen.",
        query=(_IDS, VIEWER),
    ),
    Operation(
        "POST",
        "/api/v1/presence/query",
        query,
        "Presence of many users",
        {200: _MANY},
        about="The same as `GET /presence`, with the ids in the body.",
        query=(VIEWER,),
        body=Body(UserIds),
        codes=("empty_item", "too_many_ids", "invalid_user_id"),
    ),
    Operation(
        "GET",
        "/api/v1/presence/me",
        read_me,
        "One's own presence",
        {200: Answer("The truth, also while invisible.", Myself)},
        query=(VIEWER,),
    ),
    Operation(
        "GET",
        "/api/v1/presence/count",
        count,
        "One's contacts by status",
        {200: Answer("How many look how.", Counts)},
        query=(VIEWER,),
    ),
    Operation(
        "GET",
        "/api/v1/presence/leaderboard",
        leaderboard,
        "One's contacts, the most present first",
        {200: Answer("Online, busy, away, then offline by last seen.", Leaderboard)},
        query=(_LIMIT, VIEWER),
    ),
)

LAST = (
    Operation(
        "GET",
        "/api/v1/presence/{user}",
        read_one,
        "Presence of one user",
        {200: Answer("As the caller may see it.", Status)},
        about="Fixed words (`me`, `count`, `devices`, …) win over ids here; `GET /presence?user_ids=` takes any id.",
        query=(VIEWER,),
        codes=("not_found",),
    ),
)
"""Behind everything else below /presence, where its parameter would swallow the fixed words."""
