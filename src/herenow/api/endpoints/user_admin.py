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
from herenow.wire.inputs import Scope
from herenow.wire.instants import parse_instant

AHEAD = 5_000
"""Milliseconds that the clock of a back end may be ahead of ours, as for tokens."""

_disconnect = Decoder(DisconnectBody, "an object with only the field device_id")
_revoke = Decoder(RevokeBody, "an object with only the field issued_before")


async def disconnect(call: Call) -> Response:
    """POST /users/{user}/disconnect: sign a user out on all devices, or on the device in the body."""
    user = call.path_user()
    device = (await call.body(_disconnect)).device_id
    await call.node.admin.disconnect(user, None if device is None else plain_id(device, "device_id"))
    return no_content()


async def revoke(call: Call) -> Response:
    """POST /users/{user}/revoke: revoke the user's tokens that were issued before a time (default: now)."""
    user = call.path_user()
    asked = (await call.body(_revoke)).issued_before
    before = call.now if asked is None else parse_instant(asked, "issued_before")
    if before > call.now + AHEAD:
        raise ProtocolError(
            "instant_in_future", "issued_before may not be in the future: it would revoke tokens that do not exist yet."
        )
    return json_response(Revoked(user, await call.node.admin.revoke(user, max(before, 0))))


async def delete(call: Call) -> Response:
    """DELETE /users/{user}: delete all data about a user."""
    await call.node.admin.delete(call.path_user())
    return no_content()


OPERATIONS = (
    Operation(
        "POST",
        "/api/v1/users/{user}/disconnect",
        disconnect,
        "Sign a user out",
        {204: ResponseDoc("The user is signed out, or was already.")},
        about="Closes the sockets of the user, or of one device, on every node with close code 4409. The user is offline at "
        "once, without the reconnect window. Tokens stay valid: revoke them if the client must not connect again.",
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        body=BodyDoc(DisconnectBody, required=False),
        codes=("invalid_id",),
    ),
    Operation(
        "POST",
        "/api/v1/users/{user}/revoke",
        revoke,
        "Revoke a user's tokens",
        {200: ResponseDoc("The time before which issued tokens are revoked.", Revoked)},
        about="Refuses all tokens of the user that were issued before `issued_before` (default: now), and closes the "
        "sockets opened with them, on every node, with close code 4401. A token without `iat` counts as issued at 0.",
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        body=BodyDoc(RevokeBody, required=False),
        codes=("invalid_instant", "instant_in_future"),
    ),
    Operation(
        "DELETE",
        "/api/v1/users/{user}",
        delete,
        "Delete a user",
        {204: ResponseDoc("All data about the user is deleted.")},
        about="Closes the user's sockets with close code 4401, deletes all data about the user, and revokes the user's "
        "tokens. Viewers see the user offline, never seen. With a new token, the id is a new user. Repeating is harmless.",
        access=Access.SERVICE,
        scope=Scope.ADMIN,
    ),
)
