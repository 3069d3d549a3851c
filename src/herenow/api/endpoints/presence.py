"""Read presence: of one user, of many, one's own, or of one's contacts, counted or ranked.

`node.viewing` returns what the viewer may see, already encoded as on the WebSocket.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from herenow.api.description.operations import BodyDoc, Operation, Parameter, ResponseDoc
from herenow.api.http.problems import check_rate
from herenow.api.http.request import Call, user_id
from herenow.api.http.request_body import Decoder
from herenow.api.http.responses import json_array, json_response, raw_json_response
from herenow.api.request_shapes import ID_SCHEMA, UserIds
from herenow.errors import ProtocolError
from herenow.wire.answers import Counts, Leaderboard, Myself, StatusAnswer
from herenow.wire.ids import are_plain
from herenow.wire.inputs import Scope

FRIENDS = 50
"""Default `limit` of the leaderboard."""

_user_ids = Decoder(UserIds, 'an object {"user_ids": […]}')


async def read_many(call: Call) -> Response:
    """GET /presence?user_ids=a,b,c: read the presence of several users."""
    given = call.parameters("user_ids")
    if not given:
        raise ProtocolError("bad_shape", "The parameter user_ids, a list of ids separated by commas, is missing.")
    text = ",".join(given)
    return await _many(call, text.split(",") if text else [])


async def query(call: Call) -> Response:
    """POST /presence/query: read the presence of many users, with the ids in the body, for lists too long for a URL."""
    return await _many(call, (await call.body(_user_ids)).user_ids)


async def _many(call: Call, ids: Sequence[object]) -> Response:
    users, viewer = distinct(ids, call.settings.max_bulk), call.viewer
    await _check_poll_rate(call)
    return raw_json_response(json_array(await call.node.viewing.statuses(viewer, users)))


def distinct(ids: Sequence[object], most: int, code: str = "too_many_ids") -> list[str]:
    """Check user ids and remove duplicates, keeping the order. Raises `ProtocolError` with the code `code` if there are
    more than `most` ids."""
    if len(ids) > most:
        raise ProtocolError(code, f"A request may contain at most {most} ids; this one has {len(ids)}.")
    if "" in ids:
        raise ProtocolError("empty_item", "The list of ids has an empty item.")
    if are_plain(ids):
        return list(dict.fromkeys(ids))
    return list(dict.fromkeys(map(user_id, ids)))


async def read_one(call: Call) -> Response:
    """GET /presence/{user}: read the presence of one user."""
    user = call.path_user()
    [status] = await call.node.viewing.statuses(call.viewer, [user])
    return raw_json_response(status)


async def read_me(call: Call) -> Response:
    """GET /presence/me: read the caller's own presence, which is the true one even while invisible."""
    return raw_json_response(await call.node.viewing.me(call.myself))


async def count(call: Call) -> Response:
    """GET /presence/count: count the caller's contacts by status."""
    user = call.myself
    await _check_poll_rate(call)
    return json_response(await call.node.viewing.count(user))


async def leaderboard(call: Call) -> Response:
    """GET /presence/leaderboard: list the caller's contacts, those who are present first."""
    most = call.settings.max_bulk
    limit = call.number("limit", min(FRIENDS, most), 1, most)
    user = call.myself
    await _check_poll_rate(call)
    friends = await call.node.viewing.leaderboard(user, limit)
    return raw_json_response(b'{"friends":' + json_array(friends) + b"}")


async def _check_poll_rate(call: Call) -> None:
    """Raise `polling_too_fast` if a user without a live session reads in bulk too often; services are not limited. Call
    it after all other checks, so that an invalid request does not use up the limit."""
    wait = 0 if call.caller.service else await call.node.viewing.wait_before_poll(call.caller.user)
    check_rate(
        wait,
        "polling_too_fast",
        "Bulk reads without a live session are limited; a WebSocket or GET /api/v1/presence/stream sends changes.",
    )


VIEWER = Parameter(
    "viewer",
    "For service tokens: return exactly what this user would get. Without it, a service reads the true presence.",
    ID_SCHEMA,
    codes=("forbidden", "invalid_user_id"),
)
_LIMIT = Parameter(
    "limit",
    "Maximum number of entries: 1 to `max_bulk`.",
    {"type": "integer", "minimum": 1, "default": FRIENDS},
    codes=("out_of_range",),
)
_IDS = Parameter(
    "user_ids",
    "Ids separated by commas; may be empty. For a list that is too long for a URL, use `POST /presence/query`.",
    {"type": "string"},
    required=True,
    codes=("empty_item", "too_many_ids", "invalid_user_id"),
)
_POLLED = ("polling_too_fast",)
_MANY = ResponseDoc("In the order of the request, each user once.", list[StatusAnswer])

OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/presence",
        read_many,
        "Read the presence of several users",
        {200: _MANY},
        about="Unrelated, unknown and deleted users look the same: offline, never seen.",
        scope=Scope.READ,
        query=(_IDS, VIEWER),
        codes=_POLLED,
    ),
    Operation(
        "POST",
        "/api/v1/presence/query",
        query,
        "Read the presence of many users",
        {200: _MANY},
        about="The same as `GET /presence`, with the ids in the body.",
        scope=Scope.READ,
        query=(VIEWER,),
        body=BodyDoc(UserIds),
        codes=("empty_item", "too_many_ids", "invalid_user_id", *_POLLED),
    ),
    Operation(
        "GET",
        "/api/v1/presence/me",
        read_me,
        "Read one's own presence",
        {200: ResponseDoc("The true presence, even while invisible.", Myself)},
        scope=Scope.READ,
        query=(VIEWER,),
    ),
    Operation(
        "GET",
        "/api/v1/presence/count",
        count,
        "Count one's contacts by status",
        {200: ResponseDoc("The number of contacts with each status, as the viewer sees them.", Counts)},
        scope=Scope.READ,
        query=(VIEWER,),
        codes=_POLLED,
    ),
    Operation(
        "GET",
        "/api/v1/presence/leaderboard",
        leaderboard,
        "List one's contacts, those who are present first",
        {200: ResponseDoc("Online, busy, away, then offline by last seen.", Leaderboard)},
        scope=Scope.READ,
        query=(_LIMIT, VIEWER),
        codes=_POLLED,
    ),
)

LAST = (
    Operation(
        "GET",
        "/api/v1/presence/{user}",
        read_one,
        "Read the presence of one user",
        {200: ResponseDoc("The presence as the caller may see it.", StatusAnswer)},
        about="Fixed words (`me`, `count`, `devices`, …) take precedence over ids; `GET /presence?user_ids=` takes any id.",
        scope=Scope.READ,
        query=(VIEWER,),
    ),
)
"""Routed after all other paths below /presence, because `{user}` would match their fixed words too."""
