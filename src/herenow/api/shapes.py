"""What do requests and answers look like? The shapes of REST that are not already those of the wire.

What goes out is described by types. What comes in is described for readers and decoded as loosely as possible: its
values are checked by the functions of `wire`, which say in a sentence what is allowed, the same as on the WebSocket. So
an incoming field is `Any` with a schema beside it. A change of the contract is the reason to change this module.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from herenow.core.model import Mode, Platform
from herenow.core.visibility import Visibility
from herenow.wire.inputs import MAX_EMOJI, MAX_TEXT, Activity
from herenow.wire.shapes import CustomShape, DeviceShape, SelfShape, StatusShape

# --- Words -----------------------------------------------------------------------------------------------------------

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
PlatformWord = Annotated[Any, Meta(extra_json_schema=_words(*(platform.word for platform in Platform)))]
ActivityWord = Annotated[Any, Meta(extra_json_schema=_words(*(activity.value for activity in Activity)))]
Text = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "maxLength": MAX_TEXT})]
Emoji = Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "maxLength": MAX_EMOJI})]
Seconds = Annotated[
    Any, Meta(extra_json_schema={"type": ["number", "null"], "minimum": 30, "maximum": 86_400})
]

VisibilityWord = Annotated[Any, Meta(extra_json_schema={"enum": [v.word for v in Visibility]})]
Flag = Annotated[Any, Meta(extra_json_schema={"type": "boolean"})]

# --- What comes in ---------------------------------------------------------------------------------------------------


class Body(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class UserIds(Body, frozen=True):
    user_ids: list[Id]


class Heartbeat(Body, frozen=True):
    device_id: Id = None
    activity_type: ActivityWord = None
    platform: PlatformWord = None


class Beat(Body, frozen=True):
    """One beat of a batch. Without `device_id`: activity of the user's live sessions. `gone`: that device is lost."""

    user_id: Id
    device_id: Id = None
    activity_type: ActivityWord = None
    platform: PlatformWord = None
    gone: bool = False


class CustomBody(Body, frozen=True):
    """At least one of text and emoji."""

    text: Text = None
    emoji: Emoji = None
    expires_at: Until = None


class ModeBody(Body, frozen=True):
    mode: ModeWord
    until: Until = None


class PreferencesBody(Body, frozen=True):
    """What is not mentioned stays as it is."""

    visibility: VisibilityWord | UnsetType = UNSET
    share_last_seen: Flag | UnsetType = UNSET
    idle_after: Seconds | UnsetType = UNSET
    public: Flag | UnsetType = UNSET


class ContactBody(Body, frozen=True):
    until: Until = None


class DisconnectBody(Body, frozen=True):
    device_id: Id | None = None


class RevokeBody(Body, frozen=True):
    issued_before: Past = None


class RelationLine(Body, frozen=True):
    """A line of `POST /relations`. Of a room, `a` is the room and `b` the member."""

    kind: Literal["follow", "contact", "room"]
    a: Id
    b: Id
    until: Until = None


class ChangedBody(Body, frozen=True):
    """What an application knows to be different now. `users`: everything about them; `rooms`: all their members."""

    pairs: list[tuple[Id, Id]] = []
    users: list[Id] = []
    members: list[tuple[Id, Id]] = []
    """(room, user)"""
    rooms: list[Id] = []


# --- What goes out ---------------------------------------------------------------------------------------------------

Count = Annotated[int, Meta(ge=0)]


class Status(StatusShape, frozen=True, kw_only=True):
    status: Literal["online", "away", "busy", "offline"]
    as_of: int


class Myself(SelfShape, frozen=True):
    pass


class Counts(Struct, frozen=True):
    online: Count
    busy: Count
    away: Count
    offline: Count


class Leaderboard(Struct, frozen=True):
    friends: list[Status]


class Devices(Struct, frozen=True):
    devices: tuple[DeviceShape, ...]


class Beaten(Struct, frozen=True):
    """What to send with the next beat, and when."""

    device_id: str
    beat_every: float
    """Seconds."""


class BadBeat(Struct, frozen=True):
    index: Count
    code: str


class Batch(Struct, frozen=True):
    accepted: Count
    dropped: Count
    """Too soon after the one before, or about nothing that is there."""
    errors: list[BadBeat]


class CustomAnswer(Struct, frozen=True):
    custom_status: CustomShape | None


class ModeAnswer(Struct, frozen=True):
    mode: str
    until: int | None


class Preferences(Struct, frozen=True):
    visibility: Literal["everyone", "contacts", "nobody"]
    share_last_seen: bool
    """False: nobody gets exact times of one's last seen, and one gets none of others."""
    idle_after: float | None
    """Seconds; null: the server's default."""
    public: bool
    """Whether anybody at all may read `GET /public/{user}`."""


class Blocked(Struct, frozen=True):
    user_id: str


class BlockList(Struct, frozen=True):
    blocked: list[str]


class UserPage(Struct, frozen=True):
    users: list[Status]
    cursor: str | None
    """Where to go on; null: that was all. A page may be empty before the end."""


class FactsShape(Struct, frozen=True):
    """What is known about viewer and target."""

    same_user: bool
    blocked: bool
    """Either by the other."""
    mutual_follow: bool
    contact: bool
    shares_room: bool
    visibility: str
    share_last_seen: bool
    viewer_shares_last_seen: bool
    invisible: bool


class SessionShape(Struct, frozen=True):
    device_id: str
    platform: str
    state: Literal["live", "grace"]
    by: Literal["socket", "rest"]
    idle: Literal["no", "timed_out", "said"]
    since: int
    seen_at: int
    active_at: int
    lost_at: int | None


class TruthShape(Struct, frozen=True):
    """How the target truly is, and why."""

    status: str
    since: int | None
    last_seen: int | None
    because: Literal["no_session", "all_in_grace", "mode", "active", "idle"]
    device_id: str | None
    """The device that made it so, if one did."""
    mode: str
    mode_until: int | None
    hidden: bool
    look_at: int | None
    """When something of it ends or falls due by itself."""
    sessions: list[SessionShape]


class Explanation(Struct, frozen=True):
    viewer: str
    target: str
    rule: str
    sight: Literal["truth", "full", "blurred", "offline"]
    facts: FactsShape
    truth: TruthShape
    shown: Status
    """What the viewer gets."""


class Follow(Struct, frozen=True):
    a: str
    b: str


class Contact(Struct, frozen=True):
    a: str
    b: str
    until: int | None


class Member(Struct, frozen=True):
    room: str
    user: str


class Imported(Struct, frozen=True):
    rows: Count
    changed: Count
    """Those that were not so before."""


def seconds(milliseconds: int | None) -> float | None:
    """Whole seconds as an integer: 30 and not 30.0."""
    if milliseconds is None:
        return None
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000


class Revoked(Struct, frozen=True):
    user_id: str
    issued_before: int
    """Tokens issued before this are void."""
