"""A user's own devices: list them, sign one out."""

from __future__ import annotations

from starlette.responses import Response

from herenow.api.description.operations import Operation, ResponseDoc
from herenow.api.endpoints.presence import VIEWER
from herenow.api.http.problems import check_rate
from herenow.api.http.request import Call, echo
from herenow.api.http.responses import json_response, no_content
from herenow.core.limits import SIGNING_OUT
from herenow.core.visibility import seen_by_oneself
from herenow.errors import ProtocolError
from herenow.wire.answers import Devices
from herenow.wire.inputs import Scope
from herenow.wire.shapes import DeviceShape


async def read(call: Call) -> Response:
    """GET /presence/devices: list the caller's own devices."""
    presence = await call.node.viewing.presence(call.myself)
    rows = tuple(DeviceShape(d.device, d.platform.word, d.active, d.since) for d in seen_by_oneself(presence).devices)
    return json_response(Devices(rows))


async def sign_out(call: Call) -> Response:
    """DELETE /presence/devices/{device}: sign out one of the caller's devices."""
    device = call.path_id("device")
    wait = 0 if call.caller.service else call.node.sessions.wait_before_sign_out(call.caller.user)
    a_minute = 60_000 // SIGNING_OUT.every
    check_rate(
        wait,
        "signing_out_too_fast",
        f"A user may sign out {a_minute} devices a minute, and {SIGNING_OUT.burst} at once.",
    )
    if not await call.node.sessions.sign_out(call.caller.user, device):
        raise ProtocolError("device_unknown", f"You have no device {echo(device)}.")
    return no_content()


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/presence/devices",
        read,
        "List one's own devices",
        {200: ResponseDoc("Sorted by id.", Devices)},
        scope=Scope.READ,
        query=(VIEWER,),
    ),
    Operation(
        "DELETE",
        "/api/v1/presence/devices/{device}",
        sign_out,
        "Sign a device out",
        {204: ResponseDoc("The device is signed out, with all its browser tabs.")},
        about=f"Sign-outs of a user are limited to {60_000 // SIGNING_OUT.every} a minute and {SIGNING_OUT.burst} at "
        "once, except with a service token. `presence.bye` of a WebSocket is not limited.",
        scope=Scope.ADMIN,
        codes=("device_unknown", "signing_out_too_fast"),
    ),
)
