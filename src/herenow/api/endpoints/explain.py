"""For service tokens: explain what one user sees of another and why, and list the users that are present."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from herenow.api.description.operations import Access, Operation, Parameter, ResponseDoc
from herenow.api.endpoints.presence import VIEWER
from herenow.api.http.request import Call, user_id
from herenow.api.http.responses import json_array, json_response, raw_json_response
from herenow.api.request_shapes import ID_SCHEMA
from herenow.core.explain import Explained
from herenow.core.model import Custom, Sourced, Status
from herenow.core.visibility import Facts
from herenow.errors import ProtocolError
from herenow.wire.answers import Explanation, FactsShape, SessionShape, SourceShape, StatusAnswer, TruthShape, UserPage
from herenow.wire.inputs import Scope
from herenow.wire.shapes import CustomShape

PRESENT = {status.word: status for status in (Status.ONLINE, Status.BUSY, Status.AWAY)}
"""Offline users are not in the live store and cannot be listed."""

USERS, MOST_USERS = 200, 1_000


async def explain(call: Call) -> Response:
    """GET /explain?viewer=&target=: explain what the viewer sees of the target, and why."""
    viewer, target = _named(call, "viewer"), _named(call, "target")
    found = await call.node.admin.explain(viewer, target)
    return json_response(
        Explanation(
            viewer,
            target,
            found.verdict.rule,
            found.verdict.scope.word,
            _facts(found.facts),
            _truth(found.truth),
            msgspec.json.decode(found.status, type=StatusAnswer),
            must_verify=found.must_verify,
            ends_wait=found.ends_wait,
        )
    )


async def users(call: Call) -> Response:
    """GET /users?status=online&cursor=: list the users that are not offline, one page per request."""
    word = call.parameter("status")
    if word is not None and word not in PRESENT:
        raise ProtocolError(
            "bad_shape",
            f"The parameter status must be one of {', '.join(PRESENT)}; without it, all of them are listed.",
        )
    wanted = frozenset(PRESENT.values()) if word is None else frozenset({PRESENT[word]})
    limit = call.number("limit", USERS, 1, MOST_USERS)
    found, cursor = await call.node.admin.list_users(call.viewer, wanted, call.parameter("cursor"), limit)
    return raw_json_response(b'{"users":' + json_array(found) + b',"cursor":' + msgspec.json.encode(cursor) + b"}")


def _named(call: Call, name: str) -> str:
    given = call.parameter(name)
    if given is None:
        raise ProtocolError("bad_shape", f"The parameter {name}, the id of a user, is missing.")
    return user_id(given)


def _facts(facts: Facts) -> FactsShape:
    return FactsShape(
        same_user=facts.same_user,
        blocked=facts.blocked,
        mutual_follow=facts.mutual_follow,
        contact=facts.contact,
        shares_room=facts.shares_room,
        visibility=facts.target.visibility.word,
        share_last_seen=facts.target.share_last_seen,
        viewer_shares_last_seen=facts.viewer_shares,
        invisible=facts.invisible,
    )


def _truth(truth: Explained) -> TruthShape:
    return TruthShape(
        truth.status.word,
        truth.since,
        truth.last_seen,
        truth.because,
        truth.device,
        truth.mode.word,
        truth.mode_until,
        None if truth.mode_source is None else truth.mode_source.word,
        None if truth.custom is None else _custom(truth.custom),
        None if truth.custom_source is None else truth.custom_source.word,
        [_source(each) for each in truth.choices],
        truth.hidden,
        truth.look_at,
        [
            SessionShape(
                each.device,
                each.platform,
                each.state,
                each.by,
                each.idle,
                each.since,
                each.seen_at,
                each.active_at,
                each.lost_at,
            )
            for each in truth.sessions
        ],
    )


def _source(choice: Sourced) -> SourceShape:
    custom = None if choice.custom is None else _custom(choice.custom)
    return SourceShape(choice.source.word, choice.mode.word, choice.mode_until, custom)


def _custom(custom: Custom) -> CustomShape:
    return CustomShape(custom.text, custom.emoji, custom.until)


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/explain",
        explain,
        "Explain what one user sees of another, and why",
        {
            200: ResponseDoc(
                "The rule that applied, the facts that it used, and the true presence of the target.", Explanation
            )
        },
        about="The rules, in the order in which they are tried: `self`, `service`, `blocked`, `not_related`, `nobody`, "
        "`invisible`, `blurred`, `contacts`, `everyone`.",
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        query=(
            Parameter("viewer", "The viewer.", ID_SCHEMA, required=True, codes=("invalid_user_id",)),
            Parameter("target", "The user that the viewer sees.", ID_SCHEMA, required=True, codes=("invalid_user_id",)),
        ),
    ),
    Operation(
        "GET",
        "/api/v1/users",
        users,
        "List the users who are present",
        {200: ResponseDoc("A page of users, in no particular order.", UserPage)},
        about="A user who is present throughout is listed at least once. Ask for the next page until `cursor` is null.",
        access=Access.SERVICE,
        scope=Scope.READ,
        query=(
            Parameter("status", "Only users with this status.", {"enum": list(PRESENT)}),
            Parameter("cursor", "The `cursor` of the previous page.", {"type": "string"}),
            Parameter(
                "limit",
                f"How many records to read for a page, 1 to {MOST_USERS}; it may list fewer users.",
                {"type": "integer", "minimum": 1, "maximum": MOST_USERS, "default": USERS},
                codes=("out_of_range",),
            ),
            VIEWER,
        ),
    ),
)
