"""The value types of the client: presences, changes, typing events and the connection state."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from herenow.wire.answers import Myself, PreferencesAnswer, StatusAnswer
from herenow.wire.server_frames import StatusFrame
from herenow.wire.shapes import CustomShape, DeviceShape

Custom: TypeAlias = CustomShape
Device: TypeAlias = DeviceShape
Preferences: TypeAlias = PreferencesAnswer
Me: TypeAlias = Myself
"""The user's own presence: the true status, even while invisible."""
Phase: TypeAlias = Literal["connecting", "connected", "reconnecting", "signed_out", "closed"]
"""In the phases `signed_out` (no user is signed in at the application) and `closed` the client does not reconnect."""


class Presence(Struct, frozen=True, kw_only=True):
    """The presence of a user, as this client may see it. Times are epoch milliseconds."""

    user_id: str
    status: str = "unknown"
    """`online`, `away`, `busy`, `offline`, or `unknown` if nothing was received yet or the server refused (`denied`)."""
    since: int | None = None
    last_seen: int | None = None
    last_seen_bucket: str | None = None
    """A coarse range instead of `last_seen`, when the exact time is not shared with this user."""
    custom_status: Custom | None = None
    platforms: tuple[str, ...] = ()
    as_of: int = 0
    """The time at which the server knew this presence to be true."""
    stale: bool = False
    """True if this is the last known presence and may be out of date."""
    delivery: str | None = None
    """`paced`: changes may arrive some seconds late. `poll`: changes are not pushed. None: live."""
    denied: str | None = None
    """The reason for a refusal: `not_mutual_followers`, `too_many_subscriptions` or `invalid_user_id`."""

    @classmethod
    def said(cls, said: StatusAnswer | StatusFrame) -> Presence:
        return cls(
            user_id=said.user_id,
            status=said.status,
            since=said.since,
            last_seen=said.last_seen,
            last_seen_bucket=None if said.last_seen_bucket is UNSET else said.last_seen_bucket,
            custom_status=said.custom_status,
            platforms=said.platforms,
            as_of=said.as_of,
            stale=said.stale is True,
            delivery=None if said.delivery is UNSET else said.delivery,
        )


class Change(Struct, frozen=True):
    """A change of a user's presence."""

    now: Presence
    before: Presence | None
    """The presence that the reader received last; None for the first one of a user."""


class UserPage(Struct, frozen=True):
    """One page of `Rest.users`."""

    users: list[Presence]
    cursor: str | None
    """Pass it to get the next page; None on the last page. A page before the last one may be empty."""


class Explanation(Struct, frozen=True):
    """Why a viewer sees a target as it does. `facts` and `truth` are untyped, because newer servers may add fields."""

    rule: str
    """The visibility rule that decided: `self`, `blocked`, `contacts`, …"""
    sight: str
    """`truth`, `full`, `blurred` or `offline`."""
    facts: dict[str, Any]
    truth: dict[str, Any]
    """The target's true state: status, sessions, mode, and the reason for it."""
    shown: Presence
    """The presence that the viewer gets."""


class Typing(Struct, frozen=True):
    """A user started or stopped typing."""

    user_id: str
    to: str | None
    """The id of this client's user if the typing is directed to that user; None in a room."""
    room: str | None
    typing: bool
    """False when the user stops typing. The client always reports the stop, even if the other device disappears."""


class State(Struct, frozen=True):
    """The state of the connection."""

    phase: Phase
    code: int | None = None
    """The close code of the connection that ended; None if there was none."""
    reason: str = ""
    """Why it is `reconnecting` or `closed`: the reason of the close frame, or `token_failed` (no token to be had),
    `unreachable: …` (no connection was established), `no_answer` or `connection_lost`."""
    retry_in: float | None = None
    """Seconds until the next attempt; None unless `phase` is `reconnecting`."""

    @property
    def final(self) -> bool:
        """True if the client does not reconnect: it is closed, or no user is signed in."""
        return self.phase in ("closed", "signed_out")
