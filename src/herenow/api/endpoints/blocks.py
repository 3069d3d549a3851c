"""The caller's block list. A block works in both directions at once (see `core.visibility`).

The responses do not depend on whether the other user exists.
"""

from __future__ import annotations

from starlette.responses import Response

from herenow.api.description.operations import Operation, ResponseDoc
from herenow.api.endpoints.presence import VIEWER
from herenow.api.http.problems import check_rate
from herenow.api.http.request import Call
from herenow.api.http.responses import json_response, no_content
from herenow.core.limits import BLOCKING, MAX_BLOCKS
from herenow.errors import ProtocolError
from herenow.wire.answers import Blocked, BlockList
from herenow.wire.inputs import Scope


async def read_blocks(call: Call) -> Response:
    """GET /blocks: list the users that the caller blocks."""
    return json_response(BlockList(await call.node.viewing.blocked(call.myself)))


async def read_block(call: Call) -> Response:
    """GET /blocks/{user}: 200 if the caller blocks this user, otherwise 404."""
    other = call.path_user()
    if other not in await call.node.viewing.blocked(call.myself):
        raise ProtocolError("not_found", "This user is not blocked.")
    return json_response(Blocked(other))


async def put_block(call: Call) -> Response:
    """PUT /blocks/{user}: block a user."""
    other = _other(call)
    _check_rate(call)
    await call.node.viewing.block(call.caller.user, other)
    return no_content()


async def delete_block(call: Call) -> Response:
    """DELETE /blocks/{user}: unblock a user."""
    other = _other(call)
    _check_rate(call)
    await call.node.viewing.unblock(call.caller.user, other)
    return no_content()


def _other(call: Call) -> str:
    other = call.path_user()
    if other == call.caller.user:
        raise ProtocolError("blocking_oneself", "Users cannot block or unblock themselves.")
    return other


def _check_rate(call: Call) -> None:
    """Raise `blocking_too_fast` if the caller blocks and unblocks too often; services are not limited. Call it after
    all other checks, so that an invalid request does not use up the limit."""
    wait = 0 if call.caller.service else call.node.viewing.wait_before_block(call.caller.user)
    a_minute = 60_000 // BLOCKING.every
    check_rate(
        wait,
        "blocking_too_fast",
        f"A user may block and unblock {a_minute} times a minute, and {BLOCKING.burst} times at once.",
    )


_LIMIT = (
    f"Blocks and unblocks of a user are limited to {60_000 // BLOCKING.every} a minute and {BLOCKING.burst} at once, "
    "except with a service token."
)

OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/blocks",
        read_blocks,
        "List the users that one blocks",
        {200: ResponseDoc("Sorted by id.", BlockList)},
        scope=Scope.READ,
        query=(VIEWER,),
    ),
    Operation(
        "GET",
        "/api/v1/blocks/{user}",
        read_block,
        "Check whether one blocks a user",
        {200: ResponseDoc("The user is blocked. Otherwise 404.", Blocked)},
        scope=Scope.READ,
        query=(VIEWER,),
        codes=("not_found",),
    ),
    Operation(
        "PUT",
        "/api/v1/blocks/{user}",
        put_block,
        "Block a user",
        {204: ResponseDoc("The user is blocked: neither of the two sees the other.")},
        about=f"To each of the two, the other appears to have signed out at this moment. The id may be unknown. {_LIMIT} "
        f"A user may block {MAX_BLOCKS} users in all, with every kind of token.",
        scope=Scope.ADMIN,
        codes=("blocking_oneself", "blocking_too_fast", "too_many_blocks"),
    ),
    Operation(
        "DELETE",
        "/api/v1/blocks/{user}",
        delete_block,
        "Unblock a user",
        {204: ResponseDoc("The user is not blocked.")},
        about=_LIMIT,
        scope=Scope.ADMIN,
        codes=("blocking_oneself", "blocking_too_fast"),
    ),
)
