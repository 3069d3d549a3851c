"""The port to the database: `Ledger`, its values and its promises, which `herenow_testing.contracts.ledger` checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from herenow.core.model import Custom, Mode, Sourced
from herenow.core.visibility import Block, Preferences, PreferencesEdit, last_seen_when_blocked, last_seen_when_lifted
from herenow.errors import HerenowError
from herenow.ports.relations import Relation, Relations
from herenow.wire.relation_rows import RelationRow


@dataclass(frozen=True, slots=True)
class Choice:
    """A user's mode and custom status as of `version`, and those of sources beside the user (as in `Presence`). Written
    only over a lower version."""

    user: str
    version: int
    mode: Mode = Mode.AUTO
    mode_until: int | None = None
    custom: Custom | None = None
    sources: tuple[Sourced, ...] = ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """The saved data from which a presence starts. All defaults: an unknown user."""

    last_seen: int | None = None
    """The saved time, or a later one from a run marker (`open_marks`)."""
    choice: Choice | None = None
    idle_after: int | None = None


@dataclass(frozen=True, slots=True)
class BlockRow:
    """`blocker` blocks `blocked` since `at`: neither sees the other. Keeps the last seen of each as the other knew it at
    that moment. `lifted_at`: the block has ended; the row is kept, so that the blocker seems to arrive then."""

    blocker: str
    blocked: str
    at: int
    blocker_seen: int | None = None
    """The blocker's last seen, as `blocked` knew it."""
    blocked_seen: int | None = None
    lifted_at: int | None = None


def blocks_between(rows: Iterable[BlockRow], target: str) -> tuple[Block | None, Block | None]:
    """Return two blocks from those between two users (`rows`): the target's block of the other user, who is the viewer,
    lifted or not; and the viewer's own block of the target, if it is in force."""
    by_target = own = None
    for row in rows:
        if row.blocker == target:
            by_target = Block(row.blocker_seen, row.lifted_at)
        elif row.lifted_at is None:
            own = Block(row.blocked_seen)
    return by_target, own


def frozen_row(row: BlockRow, between: Sequence[BlockRow], preferences: Mapping[str, Preferences]) -> BlockRow:
    """Return the row to store for a new block, with the last seen that each user sees of the other from now on.
    `between`: earlier blocks between the two; `preferences`: those of both."""

    def seen(user: str, last_seen: int | None) -> int | None:
        by_target, _ = blocks_between(between, user)
        return last_seen_when_blocked(last_seen, by_target, preferences.get(user, _DEFAULTS))

    return replace(
        row, blocker_seen=seen(row.blocker, row.blocker_seen), blocked_seen=seen(row.blocked, row.blocked_seen)
    )


def lifted_row(row: BlockRow, now: int, if_shown: int | None, blocker: Preferences) -> BlockRow:
    """Return the row to store for a block that ends now. `if_shown`: `last_seen_if_shown` of the blocker."""
    return replace(row, lifted_at=now, blocker_seen=last_seen_when_lifted(row.blocker_seen, blocker, if_shown))


_DEFAULTS = Preferences()


class TooManyBlocks(HerenowError):  # noqa: N818 - reads as what it is
    """The user has as many blocks as allowed; nothing was changed."""


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Relations, blocks, shared rooms and preferences of one user and some others."""

    relations: Sequence[Relation]
    """In the order of the others; empty if not requested."""
    blocks: Sequence[BlockRow]
    mates: Set[str]
    """Those of the others that share a room with the user; empty if not requested."""
    preferences: Mapping[str, Preferences]


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A row of the change table: data about `a` (and `b`) has changed; read it again. kind: `relation` (a, b: an edge or
    a block), `relations` (user a with all users, and in all rooms), `member` (room a, user b), `members` (room a, all
    members), `preferences` (user a), `choice` (user a: the saved mode changed to invisible or from it, or the live store
    may lack the saved mode, custom status or idle time), `void` (user a: tokens were revoked, or the user was deleted),
    `everything` (the database went back in time; all that was read from it may be wrong)."""

    kind: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Void:
    """Tokens of this user issued before `before` are revoked."""

    user: str
    before: int
    until: int
    """When the row may be deleted: every token that it concerns has expired by then."""
    erased: int | None = None
    """When the user was deleted; None: not deleted. Data from before that is not stored again."""


class Ledger(Relations, Protocol):
    """The database. Every method raises `Unavailable` if it cannot be used. Writes are transactions; one that may have been
    committed all the same raises `UnknownOutcome`, and can be repeated without harm. Every write of relations or preferences
    adds to the change table in the same transaction."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]: ...

    @property
    def id(self) -> str:
        """The random id that the ledger got when it was created. Nodes that share a live store must have the same one."""

    async def open(self) -> None:
        """Connect to the database. Creates the tables in an empty one, and migrates SQLite. Raises `ConfigurationError`
        for a newer schema, and for an older one if other nodes may be using the database."""

    async def close(self) -> None: ...

    async def schema(self) -> tuple[str | None, str]:
        """Return (the schema revision of the database, the newest one that this version knows). The first is None for
        an empty database. Works without `open`."""

    async def migrate(self) -> None:
        """Bring the database schema up to date. Works without `open`."""

    # The start and the end of a presence

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        """Read last seen, mode, custom status and `idle_after` of these users. Users of which nothing is known are left
        out."""

    async def save_last_seen(self, rows: Mapping[str, int]) -> None:
        """Save the last seen of users (user → epoch ms). A later time that is already stored is kept."""

    async def save_choices(self, rows: Sequence[Choice]) -> None:
        """Save modes and custom statuses of users. Stored ones with a higher version are kept. Adds a change `choice`
        for each user with a stored mode that changes to invisible or from it."""

    async def chosen(self, after: str, limit: int) -> list[Choice]:
        """Return a page of the saved modes and custom statuses, sorted by user id, starting after the id `after`. Users
        with the defaults are left out."""

    async def set_idle_after(self, user: str, idle_after: int | None) -> None: ...

    # While the live store cannot be written: values that it gets after its return, by any node. A late row says that the
    # store may lack the saved mode, custom status or idle time of a user.

    async def choose_late(self, user: str, choose: Callable[[Choice | None], Choice]) -> Choice:
        """Call `choose` with the stored mode and custom status of the user (None: never saved), save the result as
        `save_choices` does, add a late row with its version and a change `choice`, all in one transaction. Returns the
        result. `choose` may be called in another thread, and more than once."""

    async def mark_late(self, user: str, version: int) -> None:
        """Add a late row for a user with a new idle time, and a change `choice`. `version`: the present time."""

    async def late_users(self, after: str, limit: int) -> list[tuple[str, int]]:
        """Return a page of the late rows as (user, version), sorted by user id, starting after the id `after`."""

    async def forget_late(self, applied: Mapping[str, int]) -> None:
        """Delete the late rows of these users with a version at or below the given one: the live store has the values."""

    # After the loss of a node and of its live store: users that were visible were last seen at the time of the
    # node's last stamp.
    #
    # A run is one epoch of a node. A run marker says that a user is visible in this run. The last seen of such a user is
    # the latest of the saved one, the time stamps of the runs and the times in the markers. A marker has no effect for
    # users with the saved mode invisible, and none in a run without a time stamp. For users with visibility `nobody` the
    # result is no later than `hidden_last_seen`.

    async def open_marks(self, run: str, here: Mapping[str, int], gone: Iterable[str]) -> None:
        """Save run markers for the users `here` (→ last sign of life): they are visible in this run of a node. Delete
        the markers of `gone`."""

    async def stamp_run(self, run: str, at: int) -> bool:
        """Save that all users with a marker of this run of a node were visible at `at`. Returns False if the run had no
        time stamp before: it is new, or was closed and has lost its markers."""

    async def end_run(self, run: str) -> None:
        """Delete the markers and the time stamp of a node's run that stopped normally and has saved the last seen of
        all its users."""

    async def open_runs(self) -> dict[str, int]:
        """Return the runs of nodes that have neither ended nor been closed, with their last time stamps (epoch ms)."""

    async def close_run(self, run: str, latest: int | None = None) -> int:
        """Save the last seen of every user with a marker of this run of a node, none later than `latest`, and delete
        the markers and the run. A later saved value is kept. Returns the number of these users."""

    async def close_runs(self) -> int:
        """Do `close_run` for all runs, and return the number of users. Called when a node with an embedded store starts."""

    # The graph

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        """Add or remove these relations and room members, all or nothing. Returns the number of rows that changed
        something."""

    async def follows(self, a: str, b: str) -> bool: ...

    async def contact(self, a: str, b: str, now: int) -> tuple[bool, int | None]:
        """Return (True if the two users are in contact, the end of the contact; None: no end)."""

    # Revoked tokens, deleted users

    async def void(self, row: Void) -> None:
        """Revoke tokens: store the row. If the user has one already, each column keeps the greater value. Adds a change
        `void` to the change table if something is new."""

    async def erase(self, row: Void) -> list[LedgerChange]:
        """Delete a user: store the row as `void` does, and delete last seen, mode, custom status, preferences, run
        markers, late rows, relations, rooms and blocks of the user in the same transaction. Returns the rows that it
        added to the change table. While the stored row exists, `save_last_seen`, `save_choices`, `choose_late` and
        `close_runs` ignore values from `erased` or earlier, which another node may still be writing."""

    async def voids(self, after: str, limit: int) -> list[Void]:
        """Return a page of revocations (`Void`), sorted by user id, starting after the id `after`."""

    async def void_of(self, user: str) -> Void | None: ...

    async def forget_voids(self, now: int) -> None:
        """Delete the revocations (`Void`) that have `until` at or before `now`."""

    async def share_rooms(self, user: str, others: Sequence[str]) -> set[str]:
        """Return those of `others` that are members of a room of the user."""

    # Preferences and blocks

    async def preferences(self, users: Sequence[str]) -> dict[str, Preferences]:
        """Read the preferences of these users. Users with the defaults are left out."""

    async def set_preferences(self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
        """Change the preferences of a user and return the result (`core.visibility.edited`). `last_seen`:
        `core.visibility.last_seen_after` the edit."""

    async def blocked(self, user: str) -> list[str]:
        """Return the users that this user blocks, sorted by id, without lifted blocks."""

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        """Return the blocks between the user and any of `others`, in either direction, including lifted ones, unsorted."""

    async def block(self, row: BlockRow, limit: int | None = None) -> bool:
        """Store a block, or put a lifted one in force again. Returns False and changes nothing if the block is in force
        already. `row` has the last seen that each user would have on signing out now. If one of them is already hidden
        from the other, the last seen from the start of that hiding is stored instead (`frozen_row`), in the same
        transaction. If the blocker has `limit` blocks, lifted ones included, the one that was lifted first is deleted;
        raises `TooManyBlocks` if all are in force."""

    async def unblock(self, blocker: str, blocked: str, now: int, if_shown: int | None = None) -> bool:
        """End a block: it is kept as lifted at `now` (`lifted_row`). `if_shown`: `core.visibility.last_seen_if_shown` of
        the blocker. Returns False if no block was in force."""

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
        """Read all that decides what the user and `others` may see of each other, in one query: relations (if
        `related`), blocks and shared rooms (if `rooms`), and the preferences of `users`. Every subscribe needs it."""

    # The change table

    async def note_changes(self, changes: Sequence[LedgerChange]) -> None:
        """Add rows to the change table for data that is kept outside of the ledger, so that every node reads it again."""

    async def changes_head(self) -> int:
        """Return the highest id that a row of the change table ever had. Data that is read after this call includes the
        changes up to this id."""

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        """Return at most `limit` rows of the change table after the id `after`, and the id to pass next. Rows become
        visible in the order of their ids, so none is missed."""

    async def forget_changes(self, before: int) -> None:
        """Delete rows of the change table with ids at or below `before`."""
