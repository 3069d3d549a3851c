"""The caller's block list. A block works in both directions at once (see `core.visibility`).

The responses do not depend on whether the other user exists.
"""

from __future__ import annotations

from starlette.responses import Response

from herenow.api.description.operations import Operation, ResponseDoc
from herenow.api.endpoints.presence import VIEWER
from herenow.api.http.request import Call
from herenow.api.http.responses import json_response, no_content
from herenow.errors import ProtocolError
from herenow.wire.answers import Blocked, BlockList


async def read_blocks(call: Call) -> Response:
    """GET /blocks"""
    return json_response(BlockList(await call.node.viewing.blocked(call.myself)))


async def read_block(call: Call) -> Response:
    """GET /blocks/{user}"""
    other = call.path_user()
    if other not in await call.node.viewing.blocked(call.myself):
        raise ProtocolError("not_found", "This user is not blocked.")
    return json_response(Blocked(other))


async def put_block(call: Call) -> Response:
    """PUT /blocks/{user}"""
    await call.node.viewing.block(call.caller.user, _other(call))
    return no_content()


async def delete_block(call: Call) -> Response:
    """DELETE /blocks/{user}"""
    await call.node.viewing.unblock(call.caller.user, _other(call))
    return no_content()


def _other(call: Call) -> str:
    other = call.path_user()
    if other == call.caller.user:
        raise ProtocolError("blocking_oneself", "Nobody can block themselves, nor needs to be unblocked by themselves.")
    return other


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/blocks",
        read_blocks,
        "Whom one blocks",
        {200: ResponseDoc("Sorted by id.", BlockList)},
        query=(VIEWER,),
    ),
    Operation(
        "GET",
        "/api/v1/blocks/{user}",
        read_block,
        "Does one block this user?",
        {200: ResponseDoc("Yes; 404: no.", Blocked)},
        query=(VIEWER,),
        codes=("not_found",),
    ),
    Operation(
        "PUT",
        "/api/v1/blocks/{user}",
        put_block,
        "Block a user",
        {204: ResponseDoc("It is so now: neither sees the other.")},
        about="Each looks to the other like somebody who signed out at this moment. Any id will do.",
        codes=("blocking_oneself",),
    ),
    Operation(
        "DELETE",
        "/api/v1/blocks/{user}",
        delete_block,
        "No longer block a user",
        {204: ResponseDoc("It is so now.")},
        codes=("blocking_oneself",),
    ),
)
