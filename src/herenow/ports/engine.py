"""The hot state's port: `Engine`, its values and its promises.

An engine stores and compares; it does not know the word "online". What a record means is decided in `core`, and
every rule that needs time gets it as an argument, so a memory engine and a Redis engine cannot disagree.

The promises of an engine. The contract suite (`herenow_testing.contracts.engine`) cites them by number.

  P1  `commit` writes only over the expected old bytes; otherwise it returns the current ones.
  P2  One commit writes the record, its wake-up, its log entry and its "not yet in the ledger" mark in one atomic act.
  P3  A batch carries its writer's epoch and sequence number; a batch of a fenced epoch, or a late one, changes nothing.
  P4  Whoever is due stays due until committed again; two reapers yield one change.
  P5  Entries of a shard's log are numbered without holes and tagged by batch; a reader learns of every gap, and of a log
      that is another branch than the one it read.
  P6  Every read that can show absence says whether its shard is settled; absence is evidence only in a settled shard.
  P7  No operation uses a clock of its own: time is an argument (`store_time` only reports).
  P8  `Unavailable` (nothing happened) and `UnknownOutcome` (it may have) are different errors.

A third party that writes an engine implements `Engine`, adds a line to `herenow.engines.ENGINES` and runs the suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from herenow.core.values import Value


class Loaded(Value, frozen=True):
    """A record as read. `record` None in an unsettled shard says nothing (P6)."""

    record: bytes | None
    settled: bool


class Write(Value, frozen=True):
    """One user's part of a batch."""

    user: str
    expected: bytes | None
    """The bytes this write was computed from; None: there must be no record."""
    record: bytes | None
    """The new bytes; None removes the record, and its mark with it."""
    wake_at: int | None = None
    """The user's wake-up from now on, whatever it was before; None: none. Holds for a removed record too."""
    note: bytes | None = None
    """Not None: append a log entry that carries these few bytes beside the record (None for a removed one)."""
    unsaved: bool = False
    """Set the mark "not yet in the ledger"; False leaves the mark as it is. Without a record there is no mark."""


class Batch(Value, frozen=True):
    """What one node writes to one shard in one act. A node has at most one batch per shard in flight."""

    shard: int
    epoch: str
    last: int
    """The number of this epoch's last acknowledged batch in this shard: the fence's row must equal it."""
    next: int
    """The number the row gets; greater than `last`."""
    writes: tuple[Write, ...]
    """Taken in order: a second write of the same user sees what the first one left. All users are of this shard. An
    empty batch moves the row like any other, and so does one whose writes all conflict."""


@dataclass(frozen=True, slots=True)
class Written:
    """This write took place."""


class Conflict(Value, frozen=True):
    """The record was not the expected one; this is what stands there now (None: nothing)."""

    current: bytes | None


class Committed(Value, frozen=True):
    """The batch was taken: one result per write, in order. A conflict of one does not stop the others."""

    results: tuple[Written | Conflict, ...]
    settled: bool


@dataclass(frozen=True, slots=True)
class Fenced:
    """The batch changed nothing. `row` is the fence's row: None when missing, otherwise its number."""

    row: int | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A record that a node still knows after a shard lost it: put if absent or older, without a log entry. A settled
    shard takes none: an offer that arrives late would bring back what was removed on purpose.

    Older means: the version stored is less than `version`. Every record of every format holds its version in bytes 2
    to 7, 48 bits big-endian (`core.record`), so an engine can compare without understanding anything else. An offer
    that is put sets the wake-up and the mark as a write does; one that is not put changes nothing."""

    user: str
    version: int
    record: bytes
    wake_at: int | None
    unsaved: bool


@dataclass(frozen=True, slots=True)
class Due:
    """Who has to be decided again. `next_at` is when somebody else falls due (None: nobody), for a patient reaper; it
    lies in the past when the limit cut the answer short."""

    users: tuple[str, ...]
    next_at: int | None
    wakes: tuple[int, ...] = field(default=(), compare=False)
    """When each of them was due, in the same order: how late we are is worth knowing."""
    settled: bool = field(default=True, compare=False)
    """Of the shard (P6): who asks often is the first to see that a shard was emptied."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a walk over all records of a shard; `cursor` None at its end. A record that stays throughout the
    walk is seen at least once; one that comes, goes or moves may be missed or seen twice."""

    records: tuple[tuple[str, bytes], ...]
    cursor: str | None


class Entry(Value, frozen=True):
    """One line of a shard's log."""

    number: int
    user: str
    record: bytes | None
    note: bytes


class LogPosition(int):
    """The number of a log entry, with the tag of the batch that wrote it.

    Two branches of a store (two masters for a while, a failover that lost writes) give the same numbers to different
    entries; a tag belongs to one batch only, so it tells the branches apart. Compares and counts as a number."""

    tag: str

    def __new__(cls, number: int, tag: str) -> LogPosition:
        position = super().__new__(cls, number)
        position.tag = tag
        return position


def continues(cursor: int, tag: str) -> bool:
    """True if a log whose entry at the cursor has this tag continues what the reader of the cursor has read. A plain number
    as cursor knows no tag and is not compared."""
    return not isinstance(cursor, LogPosition) or cursor.tag == tag


class LogPart(Value, frozen=True):
    """What a shard's log holds after a cursor. `gap`: entries between cursor and the first one here are lost, the log
    restarted (its numbers went back), or the entry at the cursor has another tag (the store lost writes and went on):
    re-read what is watched. `head` is the cursor to go on with."""

    shard: int
    entries: tuple[Entry, ...]
    head: LogPosition
    gap: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """A node's row. Alive while its counter moves; `dead` was set by an observer and is final for that epoch."""

    epoch: str
    counter: int
    renewed_at: int
    dead: bool = False


class Engine(Protocol):
    """Hot state. Every method may raise `Unavailable` or `UnknownOutcome` (P8); reads only the former."""

    @property
    def shards(self) -> int: ...

    async def check(self) -> None:
        """Reach the store and find out whether it can be used at all: `ConfigurationError` says why not. Changes nothing."""

    async def open(self, terms: Mapping[str, str]) -> None:
        """Connect and `check`; write `terms` (ledger id, secret's fingerprint, shards, timings) into an empty store, or
        compare them with those there and raise `ConfigurationError` naming the term that differs. A term that the store does
        not know yet is added, one that only the store knows is left alone: an older version wrote it, or a newer."""

    async def close(self) -> None: ...

    async def store_time(self) -> int:
        """The clock that all nodes follow."""

    # Records

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        """In the order asked; repeated users are repeated."""

    async def commit(self, batch: Batch) -> Committed | Fenced: ...

    async def offer(self, shard: int, offers: Sequence[Offer], since: int = 0) -> None:
        """The shard then counts as unsettled since `since`, if it was before: nobody settles it while somebody is still
        offering."""

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        """Of each shard, users whose wake-up is at or before `now`, earliest first, at most `limit`. Cheap when nobody is
        due. Shards that do not answer are left out; `Unavailable` when none does."""

    async def walk(self, shard: int, cursor: str | None, limit: int) -> Page:
        """Records from the cursor of the last page on. `ValueError` for a cursor that no page can have given: it may come
        from outside."""

    # Shard logs

    async def heads(self) -> dict[int, LogPosition]:
        """Each shard's newest entry number (0: none yet): where a new reader starts. Shards that do not answer are left out;
        `Unavailable` when none does."""

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        """Parts of those shards that have something after the cursor or a gap; waits up to `wait` seconds for one. Shards
        that do not answer are left out as long as others do, and are then `unresponsive`."""

    @property
    def unresponsive(self) -> Set[int]:
        """Shards whose logs did not answer when `tail` last tried: nothing heard of them means nothing."""

    # Fences: one row per epoch and shard

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        """Create (or raise to `number`) this epoch's row, so that it may commit with `last=number`. False, and nothing done,
        for an epoch that was retired here: a `join` that arrives late must not let it in again."""

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        """Raise the row to `number` and return what it was; None, and nothing done, when there is no row. Afterwards
        an earlier batch that is still under way can no longer be taken (P3)."""

    async def retire(self, shard: int, epoch: str) -> None:
        """Delete the row: nothing of that epoch is ever taken again. The last few hundred retired ones are remembered."""

    # Settledness: is absence evidence?

    async def unsettle(self, shard: int, now: int) -> None:
        """Say that this shard lost something; the first one to say so sets the time, later ones change nothing.

        The first one also restarts the log at max(newest number + 1, now), so that every reader gets a gap, also one
        whose cursor a rolled-back log has meanwhile reached again with other entries (P5)."""

    async def settle(self, shard: int, now: int, after: int) -> bool:
        """Settle the shard if it was unsettled at least `after` ms ago; answers whether it is settled now. A shard
        found emptied is unsettled since the first `unsettle`; without one, this call does that and answers False."""

    # Leases

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        """Write the row, unless a later one stands there. False, and nothing written, when it stands there marked dead, or
        when it is missing and this is not how it `begins`."""

    async def leases(self) -> list[Lease]: ...

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        """Mark the row dead if its counter is still this one; one of several observers gets True."""

    async def drop_lease(self, epoch: str) -> None: ...

    # What the ledger does not have yet

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]: ...

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        """(user, record, drop): where the record is still this one, take the mark away and, if `drop`, remove record
        and wake-up too, without a log entry. Others are left alone."""

    # Direct messages between nodes: typing, disconnects. Best effort: nothing durable may depend on them

    async def send(self, message: bytes) -> None:
        """To every node that listens, the sender included."""

    async def receive(self, wait: float) -> list[bytes]:
        """What came for this handle since the last call; waits up to `wait` seconds for something."""
