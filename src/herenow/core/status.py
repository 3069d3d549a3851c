"""The status of a record, since when, and on which platforms (docs/what-a-status-means.md).

A record states its status, so that one can freeze: while nobody is live it stays what it was. What made the sessions
what they are is not known here. Another rule for what a status is, is the reason to change this module.
"""

from __future__ import annotations

from functools import cache

from herenow.core.model import Idle, Mode, Platform, Presence, Status
from herenow.core.values import replace

# An attribute of an enum is slow to get.
_OFFLINE, _ONLINE, _AWAY, _BUSY = Status.OFFLINE, Status.ONLINE, Status.AWAY, Status.BUSY
_CHOSE_BUSY, _CHOSE_AWAY = Mode.BUSY, Mode.AWAY
_ACTS = Idle.NO


def update_status(presence: Presence, at: int) -> Presence:
    """The record with the status that follows from its sessions and its mode; a frozen one stays as it was."""
    if not presence.sessions:
        return set_status(presence, _OFFLINE, at)
    if not presence.live:
        return presence  # frozen: what it was when the last live one was lost
    return set_status(presence, live_status(presence), at)


def live_status(presence: Presence) -> Status:
    if presence.mode is _CHOSE_BUSY:
        return _BUSY
    if presence.mode is _CHOSE_AWAY:
        return _AWAY
    for session in presence.sessions:
        if session.idle is _ACTS:
            return _ONLINE
    return _AWAY


def set_status(presence: Presence, status: Status, at: int) -> Presence:
    if status is _OFFLINE:
        if presence.status is _OFFLINE and presence.arriving_until is None:
            return presence
        return replace(presence, status=status, since=None, platforms=_NOWHERE, arriving_until=None, shown_at=None)
    here = platforms_of(presence)
    if status is presence.status:
        return presence if presence.platforms <= here else replace(presence, platforms=here)
    since = at
    if status is _AWAY and presence.mode is not _CHOSE_AWAY:
        since = max(max(s.active_at for s in presence.sessions), presence.shown_at or 0)
    return replace(presence, status=status, since=since, platforms=here)


def shown(presence: Presence, at: int) -> Presence:
    """No longer invisible: to others it begins now, and no time that they get to see is earlier."""
    if not presence.sessions:
        return presence
    return replace(presence, platforms=platforms_of(presence), since=at, shown_at=at)


def platforms_of(presence: Presence) -> frozenset[Platform]:
    if len(presence.sessions) == 1:  # nearly everybody
        return _ON_ONE[presence.sessions[0].platform]
    return _same(frozenset([s.platform for s in presence.sessions]))


@cache
def _same(platforms: frozenset[Platform]) -> frozenset[Platform]:
    """There are sixteen sets of platforms, and a set takes more memory than the rest of a plain record."""
    return platforms


_NOWHERE = _same(frozenset())
_ON_ONE = tuple([_same(frozenset((platform,))) for platform in Platform])
