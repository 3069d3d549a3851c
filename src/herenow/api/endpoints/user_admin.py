"""For services: disconnect a user, revoke a user's tokens, delete a user. `node.admin.users` does it on all nodes."""

from __future__ import annotations

from starlette.responses import Response

from herenow.api.description.operations import Access, BodyDoc, Operation, ResponseDoc
from herenow.api.http.request import Call, plain_id
from herenow.api.http.request_body import Decoder
from herenow.api.http.responses import json_response, no_content
from herenow.api.request_shapes import DisconnectBody, RevokeBody
from herenow.errors import ProtocolError
from herenow.wire.answers import Revoked
from herenow.wire.instants import parse_instant

AHEAD = 5_000
"""Milliseconds that the clock of a back end may be ahead of ours, as for tokens."""

_disconnect = Decoder(DisconnectBody, "an object of device_id, and no other fields")
_revoke = Decoder(RevokeBody, "an object of issued_before, and no other fields")


async def disconnect(call: Call) -> Response:
    """POST /users/{user}/disconnect"""
    user = call.path_user()
    device = (await call.body(_disconnect)).device_id
    await call.node.admin.disconnect(user, None if device is None else plain_id(device, "device_id"))
    return no_content()


async def revoke(call: Call) -> Response:
    """POST /users/{user}/revoke"""
    user = call.path_user()
    asked = (await call.body(_revoke)).issued_before
    before = call.now if asked is None else parse_instant(asked, "issued_before")
    if before > call.now + AHEAD:
        raise ProtocolError(
            "instant_in_future", "issued_before may not lie in the future: it would void tokens yet to come."
        )
    return json_response(Revoked(user, await call.node.admin.revoke(user, max(before, 0))))


async def delete(call: Call) -> Response:
    """DELETE /users/{user}"""
    await call.node.admin.delete(call.path_user())
    return no_content()


OPERATIONS = (
    Operation(
        "POST",
        "/api/v1/users/{user}/disconnect",
        disconnect,
        "Sign a user out",
        {204: ResponseDoc("It is done, or was so.")},
        about="Closes the user's sockets on every node with 4409, or those of one device, and shows them offline without "
        "grace. Tokens stay good: revoke them to keep a client out that comes back regardless.",
        access=Access.SERVICE,
        body=BodyDoc(DisconnectBody, required=False),
        codes=("invalid_id",),
    ),
    Operation(
        "POST",
        "/api/v1/users/{user}/revoke",
        revoke,
        "Void a user's tokens",
        {200: ResponseDoc("What is void now.", Revoked)},
        about="All tokens of the user issued before that instant (now, if it is left out) are refused from here on, and "
        "sockets they opened are closed on every node with 4401. A token without iat counts as issued at 0.",
        access=Access.SERVICE,
        body=BodyDoc(RevokeBody, required=False),
        codes=("invalid_instant", "instant_in_future"),
    ),
    Operation(
        "DELETE",
        "/api/v1/users/{user}",
        delete,
        "Delete a user",
        {204: ResponseDoc("Nothing is known of them any more.")},
        about="Closes their sockets with 4401, forgets everything about them, voids their tokens. Viewers see them "
        "offline, as somebody who was never here. Who returns with a new token is a new user. Asking again does no harm.",
        access=Access.SERVICE,
    ),
)
