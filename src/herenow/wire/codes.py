"""All codes that a client may get, and whether to retry: the only table of them.

A code is public and never reused: a meaning that changes gets a new name, and a code that is no longer sent stays here.
`ProtocolError`, `presence.error`, denials and problem+json use this table, and the reference page is generated from it.
Sentences for a particular case are written where the case is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, IntEnum, auto
from types import MappingProxyType

import msgspec


class Where(Flag):
    """Where a code can appear."""

    WEBSOCKET = auto()
    """In `presence.error`."""
    DENIAL = auto()
    """As the reason in `presence.subscribe.denied`."""
    REST = auto()
    """In problem+json, and in the `errors` of a batch."""
    STREAM = auto()
    """In the `presence.error` that ends an event stream."""


class Code(msgspec.Struct, frozen=True):
    name: str
    http: int
    """The HTTP status that comes with it, where there is one."""
    where: Where
    meaning: str
    retry: bool = False
    """Whether the same request may succeed later."""


class Close(IntEnum):
    """WebSocket close codes that a node sends."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NOT_UTF8 = 1007
    TOO_LARGE = 1009
    DRAINING = 1012
    OVERLOADED = 1013
    BAD_FRAMES = 4400
    UNAUTHORIZED = 4401
    SERVICE_TOKEN = 4403
    NO_LIFE = 4408
    SIGNED_OUT = 4409
    TOO_MANY_CONNECTIONS = 4429


class CloseCode(msgspec.Struct, frozen=True):
    code: Close
    meaning: str
    retry: bool
    """Whether the client may connect again (with back-off)."""


_WS = Where.WEBSOCKET
_DENIAL = Where.DENIAL
_REST = Where.REST
_STREAM = Where.STREAM
_BOTH = _WS | _REST

_TABLE = (
    # Unreadable input. On a WebSocket the first four count as malformed frames.
    Code("bad_json", 400, _BOTH, "The input is not valid JSON, or it is ambiguous (for example a repeated key)."),
    Code("unknown_type", 400, _WS, "There is no frame of this type."),
    Code("bad_shape", 400, _BOTH, "A field is missing, has the wrong type, or does not belong here."),
    Code("binary_frame", 400, _WS, "Frames must be JSON text; binary messages are not supported."),
    Code("body_too_large", 413, _REST, "The body is larger than the server accepts."),
    Code("uri_too_long", 414, _REST, "The URL is longer than the server accepts; send long lists with POST."),
    Code("unsupported_media_type", 415, _REST, "This endpoint does not accept the content type of the body."),
    # Invalid values.
    Code("invalid_id", 400, _BOTH, "The id of a device, room or user is not valid."),
    Code("invalid_user_id", 400, _BOTH | _DENIAL, "The id of a user is not valid."),
    Code("invalid_instant", 400, _BOTH, "A time is neither epoch milliseconds nor RFC 3339 with a time zone."),
    Code("instant_in_past", 400, _BOTH, "An end time must be in the future."),
    Code("instant_in_future", 400, _REST, "This time must not be in the future."),
    Code("instant_too_far", 400, _BOTH, "An end time may be at most 366 days ahead."),
    Code("invalid_text", 400, _BOTH, "A custom status is empty, or its text contains forbidden characters."),
    Code("text_too_long", 400, _BOTH, "The text of a custom status is longer than 100 code points."),
    Code("invalid_emoji", 400, _BOTH, "The emoji of a custom status is too long or contains forbidden characters."),
    Code("invalid_mode", 400, _BOTH, "The mode is not auto, busy, away or invisible."),
    Code("invalid_source", 400, _REST, "The source is not call, service, calendar or schedule."),
    Code("invalid_visibility", 400, _REST, "The visibility is not everyone, contacts or nobody."),
    Code("blocking_oneself", 400, _REST, "Users cannot block themselves."),
    Code("invalid_platform", 400, _BOTH, "The platform is not web, desktop, mobile or other."),
    Code("invalid_activity", 400, _BOTH, "The activity_type is not active or idle."),
    Code("invalid_relation", 400, _REST, "A relation is malformed, has an unknown kind, or relates a user to itself."),
    Code("out_of_range", 400, _REST, "A number is outside its allowed range."),
    Code("empty_item", 400, _REST, "A list contains an empty item."),
    Code("relations_elsewhere", 409, _REST, "This server stores no relations of this kind (setting relations)."),
    # Limits.
    Code("too_many_ids", 400, _BOTH, "The request or frame contains more ids than allowed."),
    Code("too_many_rows", 400, _REST, "The request contains more rows than allowed."),
    Code("too_many_rooms", 400, _WS, "This connection has reached its limit of open rooms; close one first."),
    Code(
        "too_many_subscriptions",
        400,
        _DENIAL | _REST,
        "This connection has reached its limit of watched users; existing subscriptions continue.",
    ),
    Code("too_many_sessions", 429, _BOTH, "This user has reached the limit of sessions; end one, or wait.", retry=True),
    Code("too_many_connections", 429, _BOTH, "This user has too many connections to this node.", retry=True),
    Code("polling_too_fast", 429, _REST, "The user reads many statuses too often without a live session.", retry=True),
    Code("too_many_blocks", 400, _REST, "This user blocks as many users as allowed; unblock some first."),
    Code(
        "requests_too_fast", 429, _REST, "The user has sent more requests than the server answers in 2 s.", retry=True
    ),
    Code("blocking_too_fast", 429, _REST, "Blocks and unblocks of a user are limited per minute.", retry=True),
    Code("signing_out_too_fast", 429, _REST, "Sign-outs of a user's devices are limited per minute.", retry=True),
    # Permissions, and things that do not exist.
    Code("not_a_member", 403, _BOTH, "The user is not a member of this room, or the room does not exist."),
    Code(
        "not_mutual_followers", 403, _DENIAL, "This user may not be watched: no relation, or the user does not exist."
    ),
    Code("forbidden", 403, _REST, "This endpoint requires a service token."),
    Code("scope_missing", 403, _REST, "The service token lacks the scope that this endpoint requires."),
    Code("forbidden_origin", 403, _REST, "Web pages of this origin are not allowed to use the server."),
    Code("not_found", 404, _REST, "There is no such endpoint or resource."),
    Code("device_unknown", 404, _REST, "The user has no device with this id."),
    Code("method_not_allowed", 405, _REST, "This path does not support this HTTP method."),
    # Authentication. Over a WebSocket these come with close code 4401 (token_of_service: 4403), except in answer to
    # presence.refresh.
    Code("token_missing", 401, _BOTH, "A token is required."),
    Code("token_malformed", 401, _BOTH, "The token is not a JSON Web Token."),
    Code("token_algorithm", 401, _BOTH, "The token is signed with an algorithm that is not accepted."),
    Code("token_bad_signature", 401, _BOTH, "The token's signature is not valid."),
    Code("token_claims", 401, _BOTH, "A claim of the token is missing or has a value that is not accepted."),
    Code("token_expired", 401, _BOTH | _STREAM, "The token has expired."),
    Code("token_revoked", 401, _BOTH | _STREAM, "The token was issued before the user's tokens were revoked."),
    Code("token_unknown_key", 401, _BOTH, "The token is signed with a key that its issuer does not publish."),
    Code("token_of_service", 403, _WS, "The token is a service token; a WebSocket needs the token of a user."),
    Code("token_other_user", 401, _WS, "The new token belongs to a different user than the connection."),
    # Failures of the server.
    Code("not_ready", 503, _REST | _STREAM, "The node is starting or draining.", retry=True),
    Code(
        "keys_unavailable",
        503,
        _BOTH,
        "The keys for verifying tokens are not available; a WebSocket is closed with code 1013.",
        retry=True,
    ),
    Code("unavailable", 503, _BOTH, "A service that the node needs is unreachable; nothing was changed.", retry=True),
    Code("unknown_outcome", 503, _BOTH, "The request may or may not have taken effect; check before repeating it."),
    Code("overloaded", 503, _BOTH | _STREAM, "The node is overloaded.", retry=True),
    Code("internal", 500, _BOTH | _STREAM, "An internal error of the server; its log has details.", retry=True),
)

_CLOSES = (
    CloseCode(Close.NORMAL, "The client asked to close, with presence.bye.", retry=False),
    CloseCode(Close.GOING_AWAY, "The client or the server is going away.", retry=True),
    CloseCode(Close.PROTOCOL_ERROR, "The peer violated the WebSocket protocol.", retry=True),
    CloseCode(Close.NOT_UTF8, "A text message was not UTF-8.", retry=True),
    CloseCode(Close.TOO_LARGE, "A message was larger than limits.frame of the welcome.", retry=True),
    CloseCode(
        Close.DRAINING, "The node is draining; reconnect after the retry_after_ms given in the reason.", retry=True
    ),
    CloseCode(
        Close.OVERLOADED, "The node is overloaded; reconnect after the retry_after_ms given in the reason.", retry=True
    ),
    CloseCode(Close.BAD_FRAMES, "The client sent too many malformed frames within a minute.", retry=False),
    CloseCode(
        Close.UNAUTHORIZED, "The token is missing, invalid, expired or revoked, or the user was deleted.", retry=False
    ),
    CloseCode(Close.SERVICE_TOKEN, "The token is a service token; a WebSocket needs the token of a user.", retry=False),
    CloseCode(Close.NO_LIFE, "The client was silent for too long, or did not read what the server sent.", retry=True),
    CloseCode(Close.SIGNED_OUT, "The device was signed out.", retry=False),
    CloseCode(Close.TOO_MANY_CONNECTIONS, "The user has too many connections or sessions.", retry=True),
)

CODES: Mapping[str, Code] = MappingProxyType({code.name: code for code in _TABLE})
CLOSES: Mapping[int, CloseCode] = MappingProxyType({row.code: row for row in _CLOSES})

MALFORMED = frozenset({"bad_json", "unknown_type", "bad_shape", "binary_frame"})
"""Codes that a correct client never causes; only these are counted on a WebSocket."""

DENIALS = frozenset(code.name for code in _TABLE if Where.DENIAL in code.where)
