"""`GET /presence/stream`: server-sent events for a viewer without a session.

This module parses the request and starts the response. `node.viewing.streams` decides what the viewer sees,
`transport.http.sse` sends it.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from herenow.api.description.operations import Media, Operation, Parameter, ResponseDoc
from herenow.api.endpoints.presence import VIEWER, distinct
from herenow.api.http.request import Call
from herenow.core.limits import size_cost
from herenow.errors import ProtocolError, Unavailable
from herenow.transport.http import EventStream, lender_of
from herenow.wire.inputs import Scope as TokenScope

HEADERS = [
    (b"content-type", Media.EVENTS.value.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers 4 or 8 KB before it forwards anything
    (b"connection", b"close"),
]


async def stream(call: Call) -> Response:
    """GET /presence/stream: send the presence of given users, or of the caller's contacts, as server-sent events."""
    given, contacts = call.parameters("user_ids"), call.parameter("contacts")
    if contacts not in (None, "true"):
        raise ProtocolError("bad_shape", "The parameter contacts must be true or absent.")
    if bool(given) == bool(contacts):
        raise ProtocolError("bad_shape", "Give either user_ids=a,b or contacts=true.")
    if contacts:
        return Events(call, call.myself, None)
    text = ",".join(given)
    most = call.settings.max_subscriptions
    ids = text.split(",") if text else []
    return Events(call, call.viewer, distinct(ids, most, "too_many_subscriptions"))


class Events(Response):
    """The response, as an ASGI application. It lasts until the client or the server ends the stream."""

    def __init__(self, call: Call, viewer: str | None, targets: list[str] | None) -> None:
        """Prepare a stream of the presence of `targets` (None: the viewer's contacts), as `viewer` sees it; None as
        `viewer` means a service, which sees the true presence."""
        self.background = None
        self._call = call
        self._viewer = viewer
        self._targets = targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lender = lender_of(scope)
        if lender is None:
            raise Unavailable("streams need herenow's own server")
        if scope["method"] == "HEAD":
            self._call.streaming.check_room()
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        events = EventStream(self._call.streaming, lender, self._call.claims, self._viewer)
        try:
            snapshot = await self._subscribe(events)
            if not self._call.caller.service:
                cost = size_cost(sum(map(len, snapshot)))
                self._call.node.context.budgets.spend(self._call.caller.user, cost)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send(_HEAD_FIRST)
            events.begin(snapshot)
            await events.ended
            await send({"type": "http.response.body", "body": b""})
        finally:
            events.on_gone()

    async def _subscribe(self, events: EventStream) -> list[bytes]:
        streams = self._call.node.viewing.streams
        if self._targets is None:
            return await streams.look_at_contacts(events.stream)
        return await streams.look(events.stream, self._targets)


_HEAD_FIRST: Message = {"type": "http.response.body", "body": b"", "more_body": True}
"""An empty first part of the body, because `CoalescingTransport` sends the head only together with body data. The events go
through a pipe of their own."""

_IDS = Parameter(
    "user_ids",
    "Ids separated by commas, at most `max_subscriptions`; may be empty. Not together with `contacts`.",
    {"type": "string"},
    codes=("empty_item", "too_many_subscriptions", "invalid_user_id"),
)
_CONTACTS = Parameter(
    "contacts", "Instead of `user_ids`: all contacts of the viewer, also those added later.", {"const": "true"}
)

OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/presence/stream",
        stream,
        "Stream presence changes",
        {
            200: ResponseDoc(
                "Server-sent events: first `presence.statuses` with all requested users, then changes.",
                str,
                Media.EVENTS,
            )
        },
        about="A stream is not a session: it does not make the viewer online. Event names are frame types, data are the "
        "frames of the WebSocket. A user whom the viewer may not see looks offline and never seen, and is shown as soon as "
        "that changes. If the server ends the stream, the last event is `presence.error`. `Last-Event-ID` is ignored: every "
        "stream starts with the complete state. For `EventSource`, the token may be in the query.",
        scope=TokenScope.READ,
        query=(_IDS, _CONTACTS, VIEWER),
        codes=("too_many_connections", "overloaded"),
    ),
)
