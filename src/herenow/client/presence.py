"""The values a client deals in: what may be shown of somebody, of oneself, and of the connection."""

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
"""One's own presence: the truth, also while invisible."""
Phase: TypeAlias = Literal["connecting", "connected", "reconnecting", "closed"]


class Presence(Struct, frozen=True, kw_only=True):
    """What may be shown of somebody. Instants are epoch milliseconds."""

    user_id: str
    status: str = "unknown"
    """`online`, `away`, `busy`, `offline`; `unknown`: nothing is known, or the server would not say (`denied`)."""
    since: int | None = None
    last_seen: int | None = None
    last_seen_bucket: str | None = None
    """Instead of `last_seen`, when the exact time is not for us."""
    custom_status: Custom | None = None
    platforms: tuple[str, ...] = ()
    as_of: int = 0
    """When the server knew this to be true."""
    stale: bool = False
    """It was so; whether it still is, nobody can tell at the moment."""
    delivery: str | None = None
    """`paced`: may come some seconds late. `poll`: will not be pushed. None: live."""
    denied: str | None = None
    """The server would not say: `not_mutual_followers`, `too_many_subscriptions` or `invalid_user_id`."""

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
    now: Presence
    before: Presence | None
    """None: the first that is known."""


class UserPage(Struct, frozen=True):
    users: list[Presence]
    cursor: str | None
    """Where to go on; None: that was all. A page may be empty before the end."""


class Explanation(Struct, frozen=True):
    """Facts and truth as the server says them, without types: a newer server may add to them."""

    rule: str
    """The rule that decided: `self`, `blocked`, `contacts`, …"""
    sight: str
    """`truth`, `full`, `blurred` or `offline`."""
    facts: dict[str, Any]
    truth: dict[str, Any]
    """How the target truly is: status, sessions, mode, and what made it so."""
    shown: Presence
    """What the viewer gets."""


class Typing(Struct, frozen=True):
    user_id: str
    to: str | None
    """Ourselves, when it is meant for us alone."""
    room: str | None
    typing: bool
    """False: no longer. It always comes, also when the other side vanishes."""


class State(Struct, frozen=True):
    phase: Phase
    code: int | None = None
    """Why the connection ended, if one did: the close code."""
    reason: str = ""
    retry_in: float | None = None
    """Seconds until the next try."""
