"""The words of presence as small frozen values.

Answers: what does one user's presence consist of, and what may be seen of it?
Knows nothing about time passing (see `settle`), bytes (see `record`), or who looks (see `visibility`).
Changes when the vocabulary of docs/what-a-status-means.md changes.

Every `*_at`, `since`, `until` and `last_seen` is an integer: epoch milliseconds of the store's clock.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from herenow.core.values import Value

UNLEASED = ""
"""The holder of a session that comes from REST heartbeats: no node leases it, it has a deadline of its own."""


class Status(IntEnum):
    """What results. The numbers are stored in records: never renumber."""

    OFFLINE = 0
    ONLINE = 1
    AWAY = 2
    BUSY = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Mode(IntEnum):
    """What the user chose. The numbers are stored in records: never renumber."""

    AUTO = 0
    BUSY = 1
    AWAY = 2
    INVISIBLE = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Platform(IntEnum):
    """What kind of device. The numbers are bits of a stored mask: never renumber."""

    OTHER = 0
    WEB = 1
    DESKTOP = 2
    MOBILE = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Idle(IntEnum):
    """Whether a device's person acts, and how we know. SAID outlives a change of `idle_after`, TIMED_OUT does not."""

    NO = 0
    TIMED_OUT = 1
    SAID = 2


class Bucket(IntEnum):
    """How long ago somebody was last seen, where the time itself is not told. The nearest first."""

    RECENTLY = 0
    WITHIN_WEEK = 1
    WITHIN_MONTH = 2
    LONG_AGO = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Session(Value, frozen=True):
    """One (user, device, holder): live while `lost_at` is None, in grace after that until it is removed."""

    device: str
    holder: str
    """Epoch of the node that leases it, or UNLEASED."""
    since: int
    seen_at: int
    """Last *committed* evidence of life; the holder knows a fresher one."""
    active_at: int
    platform: Platform = Platform.OTHER
    idle: Idle = Idle.NO
    lost_at: int | None = None

    @property
    def live(self) -> bool:
        return self.lost_at is None


class SignedOut(Value, frozen=True):
    """A session that was ended on purpose through somebody else than its holder, which must not assert it again."""

    device: str
    holder: str
    at: int


class Retired(Value, frozen=True):
    """A session that others ended because its node seemed dead. The node may come back with it: if its device is signed out
    before that, it must hear of it, also where another session has taken this one's place meanwhile."""

    device: str
    holder: str
    at: int


class Custom(Value, frozen=True):
    """A custom status. `until` None: it stays."""

    text: str
    emoji: str = ""
    until: int | None = None


# Asked for by the thousand, and an attribute of an enum is slow to get: a tenth of a microsecond.
_OFFLINE = Status.OFFLINE
_INVISIBLE = Mode.INVISIBLE
_ACTS = Idle.NO


class Presence(Value, frozen=True):
    """The record of one user. Status and views are functions of it alone; time only moves it from one to the next."""

    version: int = 0
    sessions: tuple[Session, ...] = ()
    signed_out: tuple[SignedOut, ...] = ()
    retired: tuple[Retired, ...] = ()
    mode: Mode = Mode.AUTO
    mode_until: int | None = None
    custom: Custom | None = None
    chosen: int = 0
    """The version at which mode or custom status last changed: what the ledger orders its rows by."""
    idle_after: int | None = None
    """The user's own setting in milliseconds; None: the server's default."""
    status: Status = Status.OFFLINE
    """The truth, which the user's own devices see; others see it through `public`."""
    since: int | None = None
    """When `status` began; None while offline, where `last_seen` says it."""
    last_seen: int | None = None
    """Last evidence of life that others may know: hidden activity never enters."""
    platforms: frozenset[Platform] = frozenset()
    """As last announced; follows the sessions when something else is announced, or when one of these is gone."""
    arriving_until: int | None = None
    """Set while `online_delay` still hides an arrival."""
    shown_at: int | None = None
    """When the user last stopped being invisible: no time that others get to see is from before."""
    erased_at: int | None = None
    """When the user was deleted, and everything forgotten. Kept for a while, so that nobody who missed it brings back what
    was."""
    extra: bytes = b""
    """Fields written by a newer version of herenow, kept as they are."""

    @property
    def hidden(self) -> bool:
        return self.mode is _INVISIBLE or self.arriving_until is not None

    @property
    def live(self) -> bool:
        return None in [session.lost_at for session in self.sessions]

    @property
    def active(self) -> bool:
        """Somebody acts on one of the devices, whatever the status says."""
        return any(session.idle is _ACTS for session in self.sessions if session.live)


class View(Value, frozen=True):
    """What one kind of viewer sees of a presence. The same shape for everybody, so that hidden equals offline."""

    status: Status = Status.OFFLINE
    since: int | None = None
    last_seen: int | None = None
    custom: Custom | None = None
    platforms: tuple[Platform, ...] = ()
    bucket: Bucket | None = None
    """Instead of `last_seen`, for viewers who may not know it."""


class Device(Value, frozen=True):
    """A device in the owner's own view: all its sessions, wherever they are held, in one row."""

    device: str
    platform: Platform
    active: bool
    since: int


class OwnView(Value, frozen=True):
    """What the user's own devices see."""

    status: Status
    mode: Mode
    until: int | None
    custom: Custom | None
    devices: tuple[Device, ...]


NOBODY_HERE = View()
"""What everybody sees of a user who never was here, does not exist, or is none of their business."""


def public(presence: Presence) -> View:
    """What a permitted viewer sees. An invisible user is one who signed out when `last_seen` says."""
    if presence.status is _OFFLINE or presence.hidden:
        return View(since=presence.last_seen, last_seen=presence.last_seen)
    return _present(presence)


def truth(presence: Presence) -> View:
    """What the user sees of themselves in the shape of a status."""
    if presence.status is _OFFLINE:
        return View(since=presence.last_seen, last_seen=presence.last_seen)
    return _present(presence)


def own(presence: Presence) -> OwnView:
    return OwnView(presence.status, presence.mode, presence.mode_until, presence.custom, devices(presence))


def devices(presence: Presence) -> tuple[Device, ...]:
    """One row per device id, in the order of their ids; a device is active when any of its sessions is."""
    if len(presence.sessions) == 1:  # nearly everybody
        [session] = presence.sessions
        return (Device(session.device, session.platform, session.idle is _ACTS, session.since),)
    rows: dict[str, Device] = {}
    for session in presence.sessions:
        active = session.idle is _ACTS
        known = rows.get(session.device)
        if known is None:
            rows[session.device] = Device(session.device, session.platform, active, session.since)
        else:
            rows[session.device] = Device(
                session.device, known.platform, known.active or active, min(known.since, session.since)
            )
    return tuple(rows[device] for device in sorted(rows))


def _present(presence: Presence) -> View:
    return View(
        status=presence.status, since=presence.since, custom=presence.custom, platforms=_sorted(presence.platforms)
    )


@cache
def _sorted(platforms: frozenset[Platform]) -> tuple[Platform, ...]:
    """There are sixteen of them."""
    return tuple(sorted(platforms))
