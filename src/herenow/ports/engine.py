"""The port to the live store: `Engine`, its values and its promises.

An engine stores and compares bytes; `core` decides what they mean. Time is an argument, so that no two engines can differ in
it. The contract suite (`herenow_testing.contracts.engine`) cites the promises by number:

  P1  `commit` writes only over the expected old bytes; otherwise it returns the current ones.
  P2  One commit writes the record, its wake-up, its log entry and its flag "not yet in the ledger" atomically.
  P3  A batch carries its writer's epoch and sequence number; a batch of a fenced epoch, or a late one, changes nothing.
  P4  A due user stays due until committed again; two reapers yield one change.
  P5  Entries of a shard's log are numbered without holes and tagged by batch; a reader learns of every gap, and of a log
      that is another branch than the one it read.
  P6  Every read that can show absence reports whether its shard is settled. A shard that lost data is unsettled until the
      nodes have offered it what they know; only in a settled shard does absence mean that there is no record.
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
    """A record as read. `record` None in an unsettled shard means nothing (P6)."""

    record: bytes | None
    settled: bool


class Write(Value, frozen=True):
    """One user's part of a batch."""

    user: str
    expected: bytes | None
    """The bytes this write was computed from; None: there must be no record."""
    record: bytes | None
    """The new bytes; None removes the record and its flag `unsaved`."""
    wake_at: int | None = None
    """Replaces the user's wake-up; None: no wake-up. Also applies to a removed record."""
    note: bytes | None = None
    """Not None: append a log entry with these few bytes beside the record (None for a removed one)."""
    unsaved: bool = False
    """True: set the flag "not yet in the ledger"; False: leave it as it is. A removed record has no flag."""


class Batch(Value, frozen=True):
    """The writes of one node to one shard, in one atomic act. A node has at most one batch per shard in flight."""

    shard: int
    epoch: str
    last: int
    """Number of this epoch's last acknowledged batch in this shard. The fence must have the same number."""
    next: int
    """The number that the fence gets; greater than `last`."""
    writes: tuple[Write, ...]
    """Applied in order: a second write of a user sees the result of the first. All users are of this shard. The fence
    gets its new number also if the batch is empty or all its writes conflict."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write was applied."""


class Conflict(Value, frozen=True):
    """The record was not the expected one; `current` is the present one (None: no record)."""

    current: bytes | None


class Committed(Value, frozen=True):
    """The batch was accepted: one result per write, in order. A conflict of one write does not stop the others."""

    results: tuple[Written | Conflict, ...]
    settled: bool


@dataclass(frozen=True, slots=True)
class Fenced:
    """The batch was refused and changed nothing. `row`: the number of the fence; None if there is no fence."""

    row: int | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A record that a node still knows after a shard lost data: stored if there is none or an older one, without a log
    entry. A settled shard accepts none: a late offer would restore a record that was removed on purpose.

    Older: the stored version is less than `version`. Records of every format have their version in bytes 2 to 7, 48 bits
    big-endian (`core.record`), so an engine compares without decoding. An accepted offer sets wake-up and `unsaved` as a
    write does.
    """

    user: str
    version: int
    record: bytes
    wake_at: int | None
    unsaved: bool


@dataclass(frozen=True, slots=True)
class Due:
    """Users that are due: their records must be decided again. `next_at`: when the next user falls due (None: no
    other), so that a reaper can sleep until then; in the past if the limit cut the list short."""

    users: tuple[str, ...]
    next_at: int | None
    wakes: tuple[int, ...] = field(default=(), compare=False)
    """When each of them was due, in the same order; shows how late the reaper is."""
    settled: bool = field(default=True, compare=False)
    """Of the shard (P6): frequent readers notice first that a shard was emptied."""


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a walk over all records of a shard; `cursor` None at the end. A record that exists throughout the walk is
    returned at least once; one that is added, removed or moved may be missed or returned twice."""

    records: tuple[tuple[str, bytes], ...]
    cursor: str | None


LOG_BYTES = 1 << 20
"""Bytes of users, records and notes in the log of one shard, beyond which an engine drops the oldest entries; the newest
batch stays. Enough for 2 000 ordinary entries: only users with very long records reach it."""


class Entry(Value, frozen=True):
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
    """True if a log continues what a reader has read up to `cursor`, and is not another branch of the store. `tag`: tag of
    the log's entry at the cursor, which must be that of the cursor. Always True for a plain number, which has no tag."""
    return not isinstance(cursor, LogPosition) or cursor.tag == tag


class LogPart(Value, frozen=True):
    """Entries of a shard's log after a cursor; `head` is the next cursor. `gap`: entries after the cursor were lost, the log
    restarted, or the entry at the cursor has another tag (the store lost writes): read again what is watched."""

    shard: int
    entries: tuple[Entry, ...]
    head: LogPosition
    gap: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """A node's lease in the store. The node is alive while its counter moves. Another node sets `dead`, which is final for
    that epoch."""

    epoch: str
    counter: int
    renewed_at: int
    dead: bool = False


class Engine(Protocol):
    """The live store. Every method may raise `Unavailable` or `UnknownOutcome` (P8); reads only the former."""

    @property
    def shards(self) -> int: ...

    async def check(self) -> None:
        """Connect and verify, without changes, that the store can be used. Raises `ConfigurationError` with the reason
        if not."""

    async def open(self, terms: Mapping[str, str]) -> None:
        """Connect, `check` and `agree`."""

    async def agree(self, terms: Mapping[str, str]) -> None:
        """Compare `terms` (names and values that all nodes must share: ledger id, fingerprints of secrets, shards, timings)
        with the stored ones, and store ours. Two values agree if they share a word. Raises `ConfigurationError` with the
        name of the term that differs, and stores nothing then. A term that only the store has is kept, because another
        version of herenow wrote it."""

    async def close(self) -> None: ...

    async def store_time(self) -> int:
        """Return the time of the clock that all nodes follow, in epoch milliseconds."""

    # Records

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        """Read the records of these users. The results are in the order of `users`, duplicates included."""

    async def commit(self, batch: Batch) -> Committed | Fenced: ...

    async def offer(self, shard: int, offers: Sequence[Offer], since: int = 0) -> None:
        """Give records back to a shard that lost data; `Offer` says which are stored. If `since` is later than the start of
        the shard's recovery, it becomes the start, so that the recovery does not end while a node is still offering."""

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        """Return for each shard the users that have a wake-up at or before `now`, earliest first, at most `limit`.
        Cheap if there are none. Shards that do not answer are left out; raises `Unavailable` if none does."""

    async def walk(self, shard: int, cursor: str | None, limit: int) -> Page:
        """Return the page of a shard's records that follows `cursor` (None: the first page). Raises `ValueError` for a
        cursor that no page can have returned, because cursors may come from a client."""

    # Shard logs

    async def heads(self) -> dict[int, LogPosition]:
        """Return the position of the newest entry in each shard's log (0: none yet), where a new reader starts. Shards
        that do not answer are left out; raises `Unavailable` if none does."""

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        """Read the logs of shards from their cursors on. Returns only shards with new entries or a gap, and waits up to
        `wait` seconds for one. Shards that do not answer are left out as long as others do, and are then `unresponsive`."""

    @property
    def unresponsive(self) -> Set[int]:
        """Shards that did not answer the last `tail`. There may be new entries in their logs."""

    # Fences: one number per epoch and shard

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        """Create this epoch's fence in a shard: the number that its next batch must have as `last`. An existing fence
        is raised to `number`. Returns False and changes nothing if the epoch was retired in this shard: a late `join`
        must not admit it again."""

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        """Raise this epoch's fence in a shard to `number`, and return the old number. Batches that expect the old number,
        and may still be in flight, are then refused (P3). Returns None and changes nothing if there is no fence."""

    async def retire(self, shard: int, epoch: str) -> None:
        """Delete the fence of this epoch in a shard: no batch of that epoch is accepted again. The last few hundred
        retired epochs are remembered, so that `join` refuses them."""

    # Recovery of shards that lost data (P6). A shard is settled, except during its recovery

    async def unsettle(self, shard: int, now: int) -> None:
        """Report that a shard lost data: its recovery begins at `now`. No effect if it is in recovery already. Restarts
        the shard's log at max(newest number + 1, now), so that every reader notices a gap (P5), also one with a cursor
        that a rolled-back log has reached again."""

    async def settle(self, shard: int, now: int, after: int) -> bool:
        """End the recovery of a shard if it began at least `after` ms ago. Returns True if the shard is not in recovery now.
        A shard that was emptied without a report is reported by this call, as by `unsettle`, and the result is False."""

    # Leases

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        """Write a node's lease, unless a later one is stored. Returns False and writes nothing if the stored one is
        dead, or if there is none and `begins` is False."""

    async def leases(self) -> list[Lease]: ...

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        """Set `dead` in the lease of this epoch if the lease still has this counter. Exactly one of several callers
        gets True."""

    async def drop_lease(self, epoch: str) -> None: ...

    # Records that the ledger does not have yet

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]: ...

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        """Report that the ledger has these records: rows of (user, record, drop). If the stored record is still the
        same, its flag `unsaved` is cleared and, if `drop`, record and wake-up are removed, without a log entry."""

    # Direct messages between nodes: typing, disconnects. Best effort: nothing durable may depend on them

    async def send(self, message: bytes) -> None:
        """Send a message to all listening nodes, the sender included."""

    async def receive(self, wait: float) -> list[bytes]:
        """Return the messages that arrived for this node since the last call; waits up to `wait` seconds for one."""
