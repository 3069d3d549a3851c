"""The bodies of REST answers, defined once: the server encodes and documents them, the Python client decodes them.

A class name is the name of the schema in the OpenAPI document, and so public (`api.description.openapi` has the exceptions).
A field with a fixed set of words is a `str` whose schema lists them: an older client must be able to read a word that a
newer server adds.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from herenow.wire.shapes import CustomShape, DeviceShape, SelfShape, StatusShape


def _words(*words: str) -> Meta:
    return Meta(extra_json_schema={"enum": sorted(words)})


Count = Annotated[int, Meta(ge=0)]


class StatusAnswer(StatusShape, frozen=True, kw_only=True):
    status: Annotated[str, _words("online", "away", "busy", "offline")]
    as_of: int


class Myself(SelfShape, frozen=True):
    pass


class Counts(Struct, frozen=True):
    online: Count
    busy: Count
    away: Count
    offline: Count


class Leaderboard(Struct, frozen=True):
    friends: list[StatusAnswer]


class Devices(Struct, frozen=True):
    devices: tuple[DeviceShape, ...]


class Beaten(Struct, frozen=True):
    """The device id for the next heartbeat, and the interval until then."""

    device_id: str
    beat_every: float
    """Seconds."""
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable. The heartbeat is kept, and viewers see its effect later."""


class BadBeat(Struct, frozen=True):
    index: Count
    code: str


class BatchAnswer(Struct, frozen=True):
    accepted: Count
    dropped: Count
    """Heartbeats too soon after the previous one, and activity of users without a live session."""
    errors: list[BadBeat]
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable. The accepted heartbeats are kept, and viewers see their effect later."""


class CustomAnswer(Struct, frozen=True):
    custom_status: CustomShape | None
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable. The database has the change, and viewers see it later."""


class ModeAnswer(Struct, frozen=True):
    mode: str
    until: int | None
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable. The database has the change, and viewers see it later."""


class LateAnswer(Struct, frozen=True):
    stale: bool
    """True: the live store is unreachable. The database has the change, and viewers see it later."""


class PreferencesAnswer(Struct, frozen=True):
    visibility: Annotated[str, _words("everyone", "contacts", "nobody")]
    share_last_seen: bool
    """False: others do not get this user's exact last seen, and this user does not get theirs."""
    idle_after: float | None
    """Seconds; null: the server's default."""
    public: bool
    """Whether anyone may read `GET /public/{user}`."""
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable, and gets the new `idle_after` later."""


class Blocked(Struct, frozen=True):
    user_id: str


class BlockList(Struct, frozen=True):
    blocked: list[str]


class UserPage(Struct, frozen=True):
    users: list[StatusAnswer]
    cursor: str | None
    """Pass it to get the next page; null on the last page. A page before the last one may be empty."""


class FactsShape(Struct, frozen=True):
    """The facts about viewer and target from which the server decides what the viewer may see."""

    same_user: bool
    blocked: bool
    """In either direction."""
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
    state: Annotated[str, _words("live", "grace")]
    by: Annotated[str, _words("socket", "rest")]
    idle: Annotated[str, _words("no", "timed_out", "said")]
    since: int
    seen_at: int
    active_at: int
    lost_at: int | None


class SourceShape(Struct, frozen=True):
    """Mode and custom status of one source. Where it has none (mode `auto`, custom status null), the next one counts."""

    source: Annotated[str, _words("user", "call", "service", "calendar", "schedule")]
    mode: str
    until: int | None
    custom_status: CustomShape | None


class TruthShape(Struct, frozen=True):
    """The target's true status, and the reason for it."""

    status: str
    since: int | None
    last_seen: int | None
    because: Annotated[str, _words("no_session", "all_in_grace", "mode", "active", "idle")]
    device_id: str | None
    """The device that determines the status; null if none does."""
    mode: str
    """The mode that counts: of the highest source that has one."""
    mode_until: int | None
    mode_source: str | None
    """Null: no source has a mode."""
    custom_status: CustomShape | None
    custom_source: str | None
    sources: list[SourceShape]
    """The modes and custom statuses of all sources, highest first."""
    hidden: bool
    look_at: int | None
    """The wake-up: when the status must be decided again without further events; null: none."""
    sessions: list[SessionShape]


class Explanation(Struct, frozen=True):
    viewer: str
    target: str
    rule: str
    sight: Annotated[str, _words("truth", "full", "blurred", "offline")]
    facts: FactsShape
    truth: TruthShape
    shown: StatusAnswer
    """The status that the viewer gets."""
    must_verify: bool
    """The node that answers must verify the target's shard against the store: its views are stale until then."""
    ends_wait: bool
    """No user of the target's shard is shown offline now: the store does not accept writes, or did not a moment ago."""


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
    """Rows that changed something."""


class Revoked(Struct, frozen=True):
    user_id: str
    issued_before: int
    """Epoch milliseconds. Tokens issued before this time are revoked."""
