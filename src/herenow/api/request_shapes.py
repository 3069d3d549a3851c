"""The shapes of request bodies. Responses are in `wire.answers`.

A field is `Any` with a full schema for the OpenAPI document: the functions of `wire` check its value, so that the error
sentences are the same as on the WebSocket.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from herenow.core.model import Mode, Platform
from herenow.core.visibility import Visibility
from herenow.wire.inputs import MAX_EMOJI, MAX_TEXT, SOURCES, Activity

# --- Fields ----------------------------------------------------------------------------------------------------------

ID_SCHEMA: dict[str, object] = {
    "description": "1 to 128 bytes of UTF-8 in NFC, without control characters, whitespace or comma.",
    "anyOf": [{"type": "string", "minLength": 1, "maxLength": 128}, {"type": "integer"}],
}
_INSTANT = {
    "description": "Epoch milliseconds, or RFC 3339 with a zone; in the future, at most 366 days ahead.",
    "anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}, {"type": "null"}],
}

_PAST = {
    "description": "Epoch milliseconds, or RFC 3339 with a zone; not in the future.",
    "anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}, {"type": "null"}],
}


def _words(*words: str) -> dict[str, object]:
    return {"anyOf": [{"enum": list(words)}, {"type": "null"}]}


Id = Annotated[Any, Meta(extra_json_schema=ID_SCHEMA)]
Past = Annotated[Any, Meta(extra_json_schema=_PAST)]
Until = Annotated[Any, Meta(extra_json_schema=_INSTANT)]
ModeWord = Annotated[Any, Meta(extra_json_schema={"enum": [mode.word for mode in Mode]})]
SourceWord = Annotated[Any, Meta(extra_json_schema=_words(*SOURCES))]
PlatformWord = Annotated[Any, Meta(extra_json_schema=_words(*(platform.word for platform in Platform)))]
ActivityWord = Annotated[Any, Meta(extra_json_schema=_words(*(activity.value for activity in Activity)))]
Text = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "maxLength": MAX_TEXT})]
Emoji = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "maxLength": MAX_EMOJI})]
Seconds = Annotated[Any, Meta(extra_json_schema={"type": ["number", "null"], "minimum": 30, "maximum": 86_400})]

VisibilityWord = Annotated[Any, Meta(extra_json_schema={"enum": [v.word for v in Visibility]})]
Flag = Annotated[Any, Meta(extra_json_schema={"type": "boolean"})]

# --- Bodies ----------------------------------------------------------------------------------------------------------


class RequestBody(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class UserIds(RequestBody, frozen=True):
    user_ids: list[Id]


class Heartbeat(RequestBody, frozen=True):
    device_id: Id = None
    activity_type: ActivityWord = None
    platform: PlatformWord = None


class Beat(RequestBody, frozen=True):
    """One heartbeat of a batch. Without `device_id`: the user is active in their live sessions. `gone`: the device has lost
    its connection."""

    user_id: Id
    device_id: Id = None
    activity_type: ActivityWord = None
    platform: PlatformWord = None
    gone: bool = False


class CustomBody(RequestBody, frozen=True):
    """At least one of `text` and `emoji` is required."""

    text: Text = None
    emoji: Emoji = None
    expires_at: Until = None


class CustomOfUserBody(CustomBody, frozen=True):
    source: SourceWord = None


class ModeBody(RequestBody, frozen=True):
    mode: ModeWord
    until: Until = None


class ModeOfUserBody(ModeBody, frozen=True):
    source: SourceWord = None


class PreferencesBody(RequestBody, frozen=True):
    """Fields that are left out stay unchanged."""

    visibility: VisibilityWord | UnsetType = UNSET
    share_last_seen: Flag | UnsetType = UNSET
    idle_after: Seconds | UnsetType = UNSET
    public: Flag | UnsetType = UNSET


class ContactBody(RequestBody, frozen=True):
    until: Until = None


class DisconnectBody(RequestBody, frozen=True):
    device_id: Id | None = None


class RevokeBody(RequestBody, frozen=True):
    issued_before: Past = None


class RelationLine(RequestBody, frozen=True):
    """A line of `POST /relations`. For the kind `room`, `a` is the room and `b` the member."""

    kind: Literal["follow", "contact", "room"]
    a: Id
    b: Id
    until: Until = None


class ChangedBody(RequestBody, frozen=True):
    """Relations that have changed in the application. `users`: all relations of a user; `rooms`: all members of a room."""

    pairs: list[tuple[Id, Id]] = []
    users: list[Id] = []
    members: list[tuple[Id, Id]] = []
    """(room, user)"""
    rooms: list[Id] = []
