"""A user's record as this node knows it, and the decision about it that is in progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from herenow.core.model import Presence
from herenow.core.record import decode
from herenow.core.settle import Edit
from herenow.core.values import replace

_NOTHING = Presence()


@dataclass(slots=True, eq=False, repr=False)
class PendingEdit:
    edit: Edit
    done: asyncio.Future[None]
    in_flight: bool = False
    """True while a commit that contains it is being written."""
    outcome_unknown: bool = False
    """True after a commit that contained it got no answer."""


@dataclass(slots=True, eq=False, repr=False)
class InFlightCommit:
    record: bytes
    presence: Presence
    visible: bool


@dataclass(slots=True, eq=False, repr=False)
class RecordState:
    known: bool = False
    """A record, or its absence, was read; before that `presence` means nothing."""
    guessed: bool = False
    """The store is unreachable and `presence` comes from the ledger: views are stale."""
    stored: bytes | None = None
    """The bytes in the store as far as known; the next commit expects them. None: no record."""
    presence: Presence = _NOTHING
    store_lacks: Presence | None = None
    """Newest modes, custom statuses and last seen that the store has lost; None: it has everything."""
    pending_edits: tuple[PendingEdit, ...] = ()
    dirty: bool = False
    deciding: bool = False
    committing: InFlightCommit | None = None
    """The commit whose answer has not arrived; the log may deliver it first."""
    revision: int = 0
    """Incremented when `presence` changes visibly; compare with `Watchers.published`."""

    @property
    def is_confirmed(self) -> bool:
        """True if the record, or its absence, was read from the store."""
        return self.known and not self.guessed

    def learn(self, record: bytes) -> bool:
        """Adopt a record from the store or the log if its version is newer than the known one. Returns True if it was."""
        if self.known and record == self.stored:
            return False
        ours = self.committing if self.is_ours(record) else None
        presence = decode(record) if ours is None else ours.presence
        if self.known and presence.version <= self.presence.version:
            return False
        self.adopt(record, presence, visible=ours is None or ours.visible)
        return True

    def is_ours(self, record: bytes) -> bool:
        return self.committing is not None and record == self.committing.record

    def adopt(self, record: bytes | None, presence: Presence, *, visible: bool = True) -> None:
        """Replace the known record. If mode, custom status or last seen of the new one are older than the known ones,
        the store lost writes: `store_lacks` keeps the newer values, unless the user was deleted since. `visible`:
        viewers see a difference."""
        was = self.presence
        earlier = presence.chosen < was.chosen or (presence.last_seen or 0) < (was.last_seen or 0)
        if earlier or self.store_lacks is not None:
            deleted = (presence.erased_at or 0) > (was.erased_at or 0)
            sure = self.known and not (self.guessed or deleted)
            self.store_lacks = newest_missing(presence, was if sure else None, self.store_lacks)
        if visible or self.guessed or not self.known:
            self.revision += 1
        self.known = True
        self.guessed = False
        self.stored = record
        self.presence = presence


def newest_missing(record: Presence, *known: Presence | None) -> Presence | None:
    """Return a presence with the newest modes, custom statuses and last seen of `record` and `known`; None if `record`
    has them all."""
    chosen, seen = record, record.last_seen
    for each in known:
        if each is not None:
            chosen = each if each.chosen > chosen.chosen else chosen
            seen = seen if each.last_seen is None else max(seen or 0, each.last_seen)
    if chosen is record and seen == record.last_seen:
        return None
    return replace(chosen, last_seen=seen)
