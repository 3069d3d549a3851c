"""The vocabulary of presence as small frozen values: the record of one user, and the views of it. Time is in `settle`, bytes
are in `record`, access rules in `visibility`. The words are those of docs/what-a-status-means.md.

Every `*_at`, `since`, `until` and `last_seen` is an integer: epoch milliseconds of the store's clock.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from herenow.core.values import Value

UNLEASED = ""
"""Holder of a session that exists by REST heartbeats: no node leases it, and it is lost `dead_after` after the last one."""


class Status(IntEnum):
    """The status of a user, computed from sessions and mode. The numbers are stored in records: never renumber."""

    OFFLINE = 0
    ONLINE = 1
    AWAY = 2
    BUSY = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Mode(IntEnum):
    """A mode that the user chose, or that a service set. The numbers are stored in records: never renumber."""

    AUTO = 0
    BUSY = 1
    AWAY = 2
    INVISIBLE = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Source(IntEnum):
    """Origin of a mode or custom status, highest first: the first source that has one counts. The numbers are stored in
    records: never renumber. The gaps are for sources that are added later."""

    USER = 0
    """The user's own choice. All others are set by services."""
    CALL = 2
    SERVICE = 4
    CALENDAR = 6
    SCHEDULE = 8

    @property
    def word(self) -> str:
        return self.name.lower()


class Platform(IntEnum):
    """The kind of device. The numbers are bits of a stored mask: never renumber."""

    OTHER = 0
    WEB = 1
    DESKTOP = 2
    MOBILE = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Idle(IntEnum):
    """Whether a device is idle, and how we know. `SAID`: the device reported it; a longer `idle_after` does not undo it."""

    NO = 0
    TIMED_OUT = 1
    SAID = 2


class Bucket(IntEnum):
    """The age of `last_seen`, for viewers that may not see the time itself. Most recent first."""

    RECENTLY = 0
    WITHIN_WEEK = 1
    WITHIN_MONTH = 2
    LONG_AGO = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Session(Value, frozen=True):
    """One device of a user, held by a node or kept alive by REST heartbeats. Live while `lost_at` is None; after that in
    grace until it is removed."""

    device: str
    holder: str
    """Epoch of the node that holds the session, or UNLEASED."""
    since: int
    seen_at: int
    """Last *committed* sign of life; the holder may know a later one."""
    active_at: int
    platform: Platform = Platform.OTHER
    idle: Idle = Idle.NO
    lost_at: int | None = None

    @property
    def live(self) -> bool:
        return self.lost_at is None


class SignedOut(Value, frozen=True):
    """Sign-out entry: this session was signed out through another node than its holder, which must not write it again."""

    device: str
    holder: str
    at: int


class Retired(Value, frozen=True):
    """A session that another node ended because its holder seemed dead. The holder may come back with it: if the device is
    signed out before that, this session needs a sign-out entry too, even if the device has a newer session."""

    device: str
    holder: str
    at: int


class Custom(Value, frozen=True):
    """A custom status. `until` None: no end."""

    text: str
    emoji: str = ""
    until: int | None = None


class Sourced(Value, frozen=True):
    """Mode and custom status of one source. `Mode.AUTO` and no custom status are no choice: the next source counts."""

    source: Source
    mode: Mode = Mode.AUTO
    mode_until: int | None = None
    custom: Custom | None = None
    gives_mode: bool = False
    """The mode of the record is a copy of this one: no higher source has a mode."""
    gives_custom: bool = False


# Looking up an enum attribute takes 0.1 µs, too long for functions that are called this often.
_OFFLINE = Status.OFFLINE
_AUTO, _INVISIBLE = Mode.AUTO, Mode.INVISIBLE
_NOT_IDLE = Idle.NO


class Presence(Value, frozen=True):
    """The record of one user: the whole state of the state machine. Status and views are functions of the record alone."""

    version: int = 0
    sessions: tuple[Session, ...] = ()
    signed_out: tuple[SignedOut, ...] = ()
    retired: tuple[Retired, ...] = ()
    mode: Mode = Mode.AUTO
    """The mode that counts, of the user or of one of `sources` (`mode_source`): nodes without sources show it, too."""
    mode_until: int | None = None
    custom: Custom | None = None
    """The custom status that counts, as `mode`."""
    sources: tuple[Sourced, ...] = ()
    """Modes and custom statuses that services set, highest source first. The user's own are not among them: they are `mode`
    and `custom` whenever the user has chosen, because the user's own choice is the highest."""
    chosen: int = 0
    """Version at which mode, custom status or sources last changed; the ledger keeps those with the highest one."""
    idle_after: int | None = None
    """The user's own setting in milliseconds; None: the server's default."""
    status: Status = Status.OFFLINE
    """The true status, which the user's own devices see. `public` is the view of others."""
    since: int | None = None
    """When `status` began; None while offline (see `last_seen`)."""
    last_seen: int | None = None
    """Last sign of life that others may know. Activity while hidden never changes it."""
    platforms: frozenset[Platform] = frozenset()
    """As last announced. Updated with the next announced change, or when a listed platform has no session left."""
    arriving_until: int | None = None
    """While set, `online_delay` hides the arrival from others."""
    shown_at: int | None = None
    """When the user last stopped being invisible: others see no time before this."""
    erased_at: int | None = None
    """When the user was deleted. Kept for a while, so that a node that missed the deletion does not restore old data."""
    extra: bytes = b""
    """Fields written by a newer version of herenow, kept unchanged."""

    @property
    def hidden(self) -> bool:
        return self.mode is _INVISIBLE or self.arriving_until is not None

    @property
    def mode_source(self) -> Source | None:
        """The source of the mode that is in force; None: no source has set a mode."""
        for each in self.sources:
            if each.gives_mode and each.mode is self.mode and each.mode_until == self.mode_until:
                return each.source
        return None if self.mode is _AUTO else Source.USER

    @property
    def custom_source(self) -> Source | None:
        """The source of the custom status that is in force; None: there is no custom status."""
        for each in self.sources:
            if each.gives_custom and each.custom == self.custom:
                return each.source
        return None if self.custom is None else Source.USER

    @property
    def live(self) -> bool:
        return None in [session.lost_at for session in self.sessions]

    @property
    def active(self) -> bool:
        """True if a live session of the user is not idle. It does not depend on the status, which may be busy, for
        example."""
        return any(session.idle is _NOT_IDLE for session in self.sessions if session.live)


class View(Value, frozen=True):
    """The part of a presence that one kind of viewer sees. Hidden and offline users have views of the same shape."""

    status: Status = Status.OFFLINE
    since: int | None = None
    last_seen: int | None = None
    custom: Custom | None = None
    platforms: tuple[Platform, ...] = ()
    bucket: Bucket | None = None
    """Replaces `last_seen` for viewers that may not see the time."""


class Device(Value, frozen=True):
    """A device in the owner's own view: all its sessions combined, whichever nodes hold them."""

    device: str
    platform: Platform
    active: bool
    since: int


class OwnView(Value, frozen=True):
    status: Status
    mode: Mode
    until: int | None
    custom: Custom | None
    devices: tuple[Device, ...]
    mode_source: Source | None = None
    """None: no source has a mode."""
    custom_source: Source | None = None


NOBODY_HERE = View()
"""The view of a user that was never seen, does not exist, or may not be seen by the viewer."""


def public(presence: Presence) -> View:
    """Return the presence as permitted viewers see it. A hidden user is shown as signed out at `last_seen`."""
    if presence.status is _OFFLINE or presence.hidden:
        return View(since=presence.last_seen, last_seen=presence.last_seen)
    return _visible_view(presence)


def truth(presence: Presence) -> View:
    """Return the presence as the user's own devices and services see it: nothing is hidden."""
    if presence.status is _OFFLINE:
        return View(since=presence.last_seen, last_seen=presence.last_seen)
    return _visible_view(presence)


def own(presence: Presence) -> OwnView:
    return OwnView(
        presence.status,
        presence.mode,
        presence.mode_until,
        presence.custom,
        devices(presence),
        presence.mode_source,
        presence.custom_source,
    )


def devices(presence: Presence) -> tuple[Device, ...]:
    """Return the user's devices, sorted by id. The sessions of a device are combined: it is active if one of them is,
    and its `since` is the earliest."""
    if len(presence.sessions) == 1:  # the usual case
        [session] = presence.sessions
        return (Device(session.device, session.platform, session.idle is _NOT_IDLE, session.since),)
    rows: dict[str, Device] = {}
    for session in presence.sessions:
        active = session.idle is _NOT_IDLE
        known = rows.get(session.device)
        if known is None:
            rows[session.device] = Device(session.device, session.platform, active, session.since)
        else:
            rows[session.device] = Device(
                session.device, known.platform, known.active or active, min(known.since, session.since)
            )
    return tuple(rows[device] for device in sorted(rows))


def _visible_view(presence: Presence) -> View:
    return View(
        status=presence.status, since=presence.since, custom=presence.custom, platforms=_sorted(presence.platforms)
    )


@cache
def _sorted(platforms: frozenset[Platform]) -> tuple[Platform, ...]:
    """Sort the platforms. The results are cached: there are only sixteen sets of platforms."""
    return tuple(sorted(platforms))
