"""The two doors to the outside: hot state (`Engine`) and durable facts (`Ledger`), with their promises.

An engine stores and compares; it does not know the word "online". What a record means is decided in `core`, and
every rule that needs time gets it as an argument, so a memory engine and a Redis engine cannot disagree.

The promises of an engine. The contract suite (`herenow_testing.contracts.engine`) cites them by number.

  P1  `commit` writes only over the expected old bytes; otherwise it returns the current ones.
  P2  One commit writes the record, its wake-up, its log entry and its "not yet in the ledger" mark in one atomic act.
  P3  A batch carries its writer's epoch and sequence number; a batch of a fenced epoch, or a late one, changes nothing.
  P4  Whoever is due stays due until committed again; two reapers yield one change.
  P5  Entries of a shard's log are numbered without holes; a reader learns of every gap.
  P6  Every read that can show absence says whether its shard is settled; absence is evidence only in a settled shard.
  P7  No operation uses a clock of its own: time is an argument (`store_time` only reports).
  P8  `Unavailable` (nothing happened) and `UnknownOutcome` (it may have) are different errors.

A third party that writes an engine implements `Engine`, adds a line to `herenow.engines.ENGINES` and runs the suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from herenow.core.model import Custom, Mode
from herenow.core.values import Value
from herenow.core.visibility import Preferences, PreferencesEdit

# --- Engine: values ----------------------------------------------------------------------------------------------


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


class LogPart(Value, frozen=True):
    """What a shard's log holds after a cursor. `gap`: entries between cursor and the first one here are lost, or the
    log restarted (its numbers went back): re-read what is watched. `head` is the cursor to go on with."""

    shard: int
    entries: tuple[Entry, ...]
    head: int
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

    async def heads(self) -> dict[int, int]:
        """Each shard's newest entry number (0: none yet): where a new reader starts. Shards that do not answer are left out;
        `Unavailable` when none does."""

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        """Parts of those shards that have something after the cursor or a gap; waits up to `wait` seconds for one. Shards
        that do not answer are left out as long as others do, and are then `silent`."""

    @property
    def silent(self) -> Set[int]:
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


# --- Ledger: values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user chose, as of `version`: written only where it is greater than the one stored."""

    user: str
    version: int
    mode: Mode = Mode.AUTO
    mode_until: int | None = None
    custom: Custom | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything the ledger knows of a user that a presence starts from. All defaults: a stranger."""

    last_seen: int | None = None
    choice: Choice | None = None
    idle_after: int | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """What connects two users, without direction: both follow each other; they have an open conversation."""

    mutual_follow: bool = False
    contact: bool = False
    contact_until: int | None = None
    """When `contact` ends by itself; None: never."""


STRANGERS, MUTUAL, IN_CONTACT = Relation(), Relation(mutual_follow=True), Relation(contact=True)
"""What nearly all pairs are. A source that answers with these very ones saves everybody the comparing."""


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A row of an import or of `POST /relations`. kind `follow`: a follows b; `contact`: a and b are in contact
    (until); `room`: b is a member of room a. `remove` takes the edge away."""

    kind: str
    a: str
    b: str
    until: int | None = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class BlockRow:
    """`blocker` blocks `blocked` since `at`, and neither sees the other. What each of them knew of the other's last seen
    at that moment is kept with it. `lifted_at`: it is over, and remembered for who is still hidden otherwise."""

    blocker: str
    blocked: str
    at: int
    blocker_seen: int | None = None
    """The blocker's last seen, as the other one knew it."""
    blocked_seen: int | None = None
    lifted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """What the ledger knows about one user and some others."""

    relations: Sequence[Relation]
    """In the order asked; empty where they were not asked for."""
    blocks: Sequence[BlockRow]
    mates: Set[str]
    """Who shares a room with the one; empty where that was not asked for."""
    preferences: Mapping[str, Preferences]


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A row of the change table: something about these two (or this one) has changed; read it again.
    kind: `relation` (a, b: an edge or a block), `relations` (user a with everybody, and in every room), `member`
    (room a, user b), `members` (room a, everybody), `preferences` (user a), `void` (user a: tokens were revoked, or the
    user was deleted), `everything` (the ledger went back in time; all that was read from it may be wrong)."""

    kind: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Void:
    """Tokens of this user issued before `before` are void."""

    user: str
    before: int
    until: int
    """When the row may be forgotten: every token that could be meant has expired by then."""
    erased: int | None = None
    """When the user was deleted; None: they were not. What is from before is not remembered again."""


@dataclass(slots=True)
class SourceHealth:
    """What a source of relations says of itself, for metrics and `readyz`. Written by the source, read by the node."""

    errors: Counter[str] = field(default_factory=Counter)
    """Failures by kind."""
    trouble: str | None = None
    """A sentence while it does not answer."""


class Relations(Protocol):
    """Who is connected with whom. The ledger's tables by default; others can stand here (DESIGN section 6)."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> Sequence[Relation | None]:
        """In the order asked. An edge whose end is at or before `now` is no edge. None: nothing can be said of this one,
        and the others do not suffer for it; `Unavailable`: of none of them."""

    async def contacts(self, user: str, now: int) -> list[str]:
        """All mutual followers and DM contacts, sorted by id."""

    async def is_member(self, room: str, user: str) -> bool: ...


class Ledger(Relations, Protocol):
    """Durable facts. Every method raises `Unavailable` when the database cannot be used; writes are transactions, and raise
    `UnknownOutcome` where one may have been committed all the same: doing it again is harmless.
    Every write of relations or preferences adds to the change table in the same transaction."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]: ...

    @property
    def id(self) -> str:
        """Random, made when the ledger was created: nodes that share a store must share a ledger."""

    async def open(self) -> None:
        """Connect; create an empty ledger, migrate an SQLite one; refuse a newer schema, and an older one of a database
        that others may be using (`ConfigurationError`)."""

    async def close(self) -> None: ...

    async def schema(self) -> tuple[str | None, str]:
        """(revision found, newest revision known). Works without `open`; None: an empty database."""

    async def migrate(self) -> None:
        """Bring the schema up to date. Works without `open`."""

    # What a presence starts from, and what it leaves

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        """Only users of whom something is known."""

    async def save_last_seen(self, rows: Mapping[str, int]) -> None:
        """Upserts that keep the maximum."""

    async def save_choices(self, rows: Sequence[Choice]) -> None:
        """Upserts where the version is greater."""

    async def chosen(self, after: str, limit: int) -> list[Choice]:
        """Choices other than the defaults, of users whose id sorts after this one, in the order of ids: for a walk."""

    async def set_idle_after(self, user: str, idle_after: int | None) -> None: ...

    # The kill -9 rule of the embedded engine: who was visibly here when the process last stamped its run?

    async def open_marks(self, run: str, here: Iterable[str], gone: Iterable[str]) -> None:
        """Mark users as visibly here in this run, take the mark from others."""

    async def stamp_run(self, run: str, at: int) -> None: ...

    async def end_run(self, run: str) -> None:
        """A run that ends by itself and has written everybody's last seen: its marks and its stamp are removed."""

    async def close_runs(self) -> int:
        """At start of an embedded node: everybody left open by an earlier run gets its last stamp as last seen
        (maximum kept), all marks and runs are removed. Answers how many users that were."""

    # The graph

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        """Put or remove edges, all or nothing; answers how many changed something."""

    async def follows(self, a: str, b: str) -> bool: ...

    async def contact(self, a: str, b: str, now: int) -> tuple[bool, int | None]:
        """(in contact, until)."""

    # Void tokens, deleted users

    async def void(self, row: Void) -> None:
        """Each column keeps its maximum; a change `void` is told where that is something new."""

    async def erase(self, row: Void) -> list[LedgerChange]:
        """`void`, and in the same transaction everything else that is known of the user goes: last seen, choices,
        preferences, open marks, edges of every kind. Answers what it told about that. As long as the row stands,
        `save_last_seen`, `save_choices` and `close_runs` leave out what is from `erased` or earlier: somebody may
        still be about to write it."""

    async def voids(self, after: str, limit: int) -> list[Void]:
        """Of users whose id sorts after this one, in the order of ids: for a walk."""

    async def void_of(self, user: str) -> Void | None: ...

    async def forget_voids(self, now: int) -> None:
        """Those whose `until` is at or before `now`."""

    async def share_rooms(self, user: str, others: Sequence[str]) -> set[str]:
        """Those of the others who are members of a room that the user is a member of."""

    # What users decided about being seen

    async def preferences(self, users: Sequence[str]) -> dict[str, Preferences]:
        """Only users who decided something; everybody else has the defaults."""

    async def set_preferences(
        self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None
    ) -> Preferences:
        """Merge, and answer the result (`core.visibility.edited`). `last_seen`: the user's in public now."""

    async def blocked(self, user: str) -> list[str]:
        """Whom this user blocks, sorted by id; lifted ones are none."""

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        """Those between the user and any of the others, whoever placed them, lifted ones too; in no order."""

    async def block(self, row: BlockRow) -> bool:
        """False, and nothing changed: it stands there already. One that was lifted is written over."""

    async def unblock(self, blocker: str, blocked: str, lifted_at: int | None) -> bool:
        """Remove it, or keep it as lifted at that time. False: there was none in force."""

    async def acquaintance(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> Acquaintance:
        """`between` (where `related`), `blocks` and `share_rooms` (where `rooms`) of the one and the others, and the
        `preferences` of `users`, as one question: everybody who begins to look asks it."""

    # What changed

    async def note_changes(self, changes: Sequence[LedgerChange]) -> None:
        """Add rows to the change table: something changed that is kept elsewhere, and every node must look again."""

    async def changes_head(self) -> int:
        """The id of the newest row there ever was. What is read after this call is at least as new."""

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        """Rows after this id and the id to go on with. Rows become visible in the order of their ids, whoever writes them:
        whoever has read up to one has missed none before it."""

    async def forget_changes(self, before: int) -> None:
        """Trim the change table: rows with an id at or below `before`."""
