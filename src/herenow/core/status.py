"""The status of a record, since when, and on which platforms (docs/what-a-status-means.md). The record stores its status
because it can freeze: while all sessions are in grace, it stays as it was."""

from __future__ import annotations

from functools import cache

from herenow.core.model import Idle, Mode, Platform, Presence, Status
from herenow.core.values import replace

# Looking up an enum attribute is slow.
_OFFLINE, _ONLINE, _AWAY, _BUSY = Status.OFFLINE, Status.ONLINE, Status.AWAY, Status.BUSY
_MODE_BUSY, _MODE_AWAY = Mode.BUSY, Mode.AWAY
_NOT_IDLE = Idle.NO


def update_status(presence: Presence, at: int) -> Presence:
    """Return the record with the status that follows from its sessions and mode. While all sessions are in grace, the
    status stays as it was."""
    if not presence.sessions:
        return set_status(presence, _OFFLINE, at)
    if not presence.live:
        return presence  # frozen: as it was when the last live session was lost
    return set_status(presence, live_status(presence), at)


def live_status(presence: Presence) -> Status:
    """Return the status that follows from the mode and from idle sessions. Sessions in grace count like live ones."""
    if presence.mode is _MODE_BUSY:
        return _BUSY
    if presence.mode is _MODE_AWAY:
        return _AWAY
    for session in presence.sessions:
        if session.idle is _NOT_IDLE:
            return _ONLINE
    return _AWAY


def set_status(presence: Presence, status: Status, at: int) -> Presence:
    """Return the record with this status, its start (`since`) and the platforms. Away because of idleness starts at the
    last activity (or at the end of invisibility, if later), every other status at `at`."""
    if status is _OFFLINE:
        if presence.status is _OFFLINE and presence.arriving_until is None:
            return presence
        return replace(presence, status=status, since=None, platforms=_NO_PLATFORMS, arriving_until=None, shown_at=None)
    here = platforms_of(presence)
    if status is presence.status:
        return presence if presence.platforms <= here else replace(presence, platforms=here)
    since = at
    if status is _AWAY and presence.mode is not _MODE_AWAY:
        since = max(max(s.active_at for s in presence.sessions), presence.shown_at or 0)
    return replace(presence, status=status, since=since, platforms=here)


def shown(presence: Presence, at: int) -> Presence:
    """Return the record of a user that stops being invisible at `at`: for others the status starts then, and they see
    no earlier time. Others see one platform, as when a user arrives on one device and then on another."""
    if not presence.sessions:
        return presence
    return replace(presence, platforms=_SINGLE[min(platforms_of(presence))], since=at, shown_at=at)


def platforms_of(presence: Presence) -> frozenset[Platform]:
    if len(presence.sessions) == 1:  # the usual case
        return _SINGLE[presence.sessions[0].platform]
    return _shared(frozenset([s.platform for s in presence.sessions]))


@cache
def _shared(platforms: frozenset[Platform]) -> frozenset[Platform]:
    """Return one shared object for all equal sets of platforms. There are sixteen, and a set takes more memory than all
    else in a plain record."""
    return platforms


_NO_PLATFORMS = _shared(frozenset())
_SINGLE = tuple([_shared(frozenset((platform,))) for platform in Platform])
