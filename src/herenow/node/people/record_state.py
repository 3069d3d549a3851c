"""A user's record as this node knows it, and the decision about it that is under way. Written by `records` only."""

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
    """An edit that was requested and is not committed yet."""

    edit: Edit
    done: asyncio.Future[None]
    in_flight: bool = False
    """True while a commit that contains it is being written."""
    outcome_unknown: bool = False
    """True after a commit that contained it got no answer."""


@dataclass(slots=True, eq=False, repr=False)
class InFlightCommit:
    """A commit whose answer has not arrived yet."""

    record: bytes
    presence: Presence
    visible: bool
    """True if a viewer sees a difference."""


@dataclass(slots=True, eq=False, repr=False)
class RecordState:
    known: bool = False
    """True once something was read; until then `presence` means nothing."""
    guessed: bool = False
    """True while the store is unreachable and `presence` comes from the ledger: views of it are stale."""
    stored: bytes | None = None
    """The bytes in the store as far as known: the next commit expects them there."""
    presence: Presence = _NOTHING
    store_lacks: Presence | None = None
    """The newest choice and last seen that this node knows and the store has lost; None: the store has everything."""
    pending_edits: tuple[PendingEdit, ...] = ()
    dirty: bool = False
    """True: something may have to change; decide again."""
    deciding: bool = False
    """True while a task decides about this user."""
    committing: InFlightCommit | None = None
    """The log may deliver this commit before its answer arrives."""
    revision: int = 0
    """Incremented when `presence` changes visibly; compare with `Watchers.published`."""

    def learn(self, record: bytes) -> bool:
        """Take bytes that were read or came by the log, if their version is newer. True: they were."""
        if self.known and record == self.stored:
            return False
        ours = self.committing if self.is_ours(record) else None
        presence = decode(record) if ours is None else ours.presence
        if self.known and presence.version <= self.presence.version:
            return False
        self.adopt(record, presence, visible=ours is None or ours.visible)
        return True

    def is_ours(self, record: bytes) -> bool:
        """True if this node is writing these very bytes."""
        return self.committing is not None and record == self.committing.record

    def adopt(self, record: bytes | None, presence: Presence, *, visible: bool = True) -> None:
        """Replace the record. An older choice or last seen than the known one means that the store lost writes: the newer
        values are kept in `store_lacks`, unless the user was deleted since. `visible` False: no viewer sees a difference."""
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
    """The newest choice and last seen among `known`, if the record lacks one of them; None: it has both."""
    chosen, seen = record, record.last_seen
    for each in known:
        if each is not None:
            chosen = each if each.chosen > chosen.chosen else chosen
            seen = seen if each.last_seen is None else max(seen or 0, each.last_seen)
    if chosen is record and seen == record.last_seen:
        return None
    return replace(chosen, last_seen=seen)
