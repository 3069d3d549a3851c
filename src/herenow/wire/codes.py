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
    Code("bad_json", 400, _BOTH, "This is not JSON, or JSON that could be read in two ways."),
    Code("unknown_type", 400, _WS, "There is no frame of this type."),
    Code("bad_shape", 400, _BOTH, "A field is missing, has the wrong type, or does not belong here."),
    Code("binary_frame", 400, _WS, "Frames are JSON text; binary messages are not understood."),
    Code("body_too_large", 413, _REST, "The body is larger than the server takes."),
    Code("uri_too_long", 414, _REST, "The address is longer than the server takes; POST carries long lists."),
    Code("unsupported_media_type", 415, _REST, "The body is not of a content type that this endpoint takes."),
    # Invalid values.
    Code("invalid_id", 400, _BOTH, "What should name a device, room or user is not a valid id."),
    Code("invalid_user_id", 400, _BOTH | _DENIAL, "What should name a user is not a valid id."),
    Code("invalid_instant", 400, _BOTH, "An instant is neither epoch milliseconds nor RFC 3339 with a zone."),
    Code("instant_in_past", 400, _BOTH, "An end must lie in the future."),
    Code("instant_in_future", 400, _REST, "This instant must not lie in the future."),
    Code("instant_too_far", 400, _BOTH, "An end may lie at most 366 days ahead."),
    Code("invalid_text", 400, _BOTH, "A custom status has no text, or one with forbidden characters."),
    Code("text_too_long", 400, _BOTH, "The text of a custom status has at most 100 code points."),
    Code("invalid_emoji", 400, _BOTH, "The emoji of a custom status is too long or has forbidden characters."),
    Code("invalid_mode", 400, _BOTH, "A mode is auto, busy, away or invisible."),
    Code("invalid_source", 400, _REST, "A source is call, service, calendar or schedule."),
    Code("invalid_visibility", 400, _REST, "A visibility is everyone, contacts or nobody."),
    Code("blocking_oneself", 400, _REST, "Nobody can block themselves."),
    Code("invalid_platform", 400, _BOTH, "A platform is web, desktop, mobile or other."),
    Code("invalid_activity", 400, _BOTH, "An activity_type is active or idle."),
    Code("invalid_relation", 400, _REST, "A row of relations is not of a known kind or lacks a side."),
    Code("out_of_range", 400, _REST, "A number is outside of what is allowed."),
    Code("empty_item", 400, _REST, "A list has an empty item."),
    Code("relations_elsewhere", 409, _REST, "This node does not keep such relations; their source is elsewhere."),
    # Limits.
    Code("too_many_ids", 400, _REST, "More ids than one request may ask for."),
    Code("too_many_rows", 400, _REST, "More rows than one request may carry."),
    Code("too_many_rooms", 400, _WS, "This connection has as many rooms open as it may; close one first."),
    Code(
        "too_many_subscriptions",
        400,
        _DENIAL | _REST,
        "This connection watches as many users as it may; the others are still watched.",
    ),
    Code("too_many_sessions", 429, _BOTH, "This user has as many sessions as allowed; end one, or wait.", retry=True),
    Code("too_many_connections", 429, _BOTH, "This user has as many connections here as allowed.", retry=True),
    Code("polling_too_fast", 429, _REST, "Bulk reads without a live session are limited.", retry=True),
    # Permissions, and things that do not exist.
    Code("not_a_member", 403, _BOTH, "Not a member of this room, or there is no such room."),
    Code("not_mutual_followers", 403, _DENIAL, "This user may not be watched: no relation, or no such user."),
    Code("forbidden", 403, _REST, "This endpoint needs a token with the scope service."),
    Code("forbidden_origin", 403, _REST, "Pages of this origin may not use the server."),
    Code("not_found", 404, _REST, "There is nothing at this address."),
    Code("device_unknown", 404, _REST, "The user has no such device."),
    Code("method_not_allowed", 405, _REST, "This address does not answer to this method."),
    # Authentication. Over a WebSocket these come with close code 4401, except in answer to presence.refresh.
    Code("token_missing", 401, _BOTH, "A token is required."),
    Code("token_malformed", 401, _BOTH, "The token is not a JSON Web Token."),
    Code("token_algorithm", 401, _BOTH, "The token is signed with an algorithm that is not accepted."),
    Code("token_bad_signature", 401, _BOTH, "The token's signature does not fit."),
    Code("token_claims", 401, _BOTH, "A claim of the token is missing or not acceptable."),
    Code("token_expired", 401, _BOTH | _STREAM, "The token has expired."),
    Code("token_revoked", 401, _BOTH | _STREAM, "The token was issued before the user's tokens were revoked."),
    Code("token_unknown_key", 401, _BOTH, "The token is signed with a key that its issuer does not publish."),
    Code("token_other_user", 401, _WS, "The fresh token is for another user than the connection."),
    # Failures of the server.
    Code("not_ready", 503, _REST | _STREAM, "The node is starting or draining.", retry=True),
    Code(
        "keys_unavailable",
        503,
        _BOTH,
        "The keys that tokens are verified with are out of reach; over a WebSocket with close code 1013.",
        retry=True,
    ),
    Code("unavailable", 503, _BOTH, "A service behind the node is out of reach; nothing was changed.", retry=True),
    Code("unknown_outcome", 503, _BOTH, "It may or may not have been done; look before repeating."),
    Code("overloaded", 503, _BOTH | _STREAM, "The node has more to do than it can.", retry=True),
    Code("internal", 500, _BOTH | _STREAM, "The server made a mistake; its log says more.", retry=True),
)

_CLOSES = (
    CloseCode(Close.NORMAL, "Closed as the client asked, after presence.bye.", retry=False),
    CloseCode(Close.GOING_AWAY, "One side goes away.", retry=True),
    CloseCode(Close.PROTOCOL_ERROR, "The WebSocket protocol was broken.", retry=True),
    CloseCode(Close.NOT_UTF8, "A text message was not UTF-8.", retry=True),
    CloseCode(Close.TOO_LARGE, "A message was larger than limits.frame of the welcome.", retry=True),
    CloseCode(Close.DRAINING, "The node is draining; come back after retry_after_ms of the reason.", retry=True),
    CloseCode(Close.OVERLOADED, "The node is overloaded; come back after retry_after_ms of the reason.", retry=True),
    CloseCode(Close.BAD_FRAMES, "Too many malformed frames within a minute.", retry=False),
    CloseCode(
        Close.UNAUTHORIZED, "The token is missing, bad, expired or revoked, or the user was deleted.", retry=False
    ),
    CloseCode(Close.NO_LIFE, "No sign of life for too long, or the client did not read.", retry=True),
    CloseCode(Close.SIGNED_OUT, "This device was signed out.", retry=False),
    CloseCode(Close.TOO_MANY_CONNECTIONS, "The user has too many connections or sessions.", retry=True),
)

CODES: Mapping[str, Code] = MappingProxyType({code.name: code for code in _TABLE})
CLOSES: Mapping[int, CloseCode] = MappingProxyType({row.code: row for row in _CLOSES})

MALFORMED = frozenset({"bad_json", "unknown_type", "bad_shape", "binary_frame"})
"""Codes that a correct client never causes; only these are counted on a WebSocket."""

DENIALS = frozenset(code.name for code in _TABLE if Where.DENIAL in code.where)
