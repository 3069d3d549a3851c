"""The port to the database: `Ledger`, its values and its promises, which `herenow_testing.contracts.ledger` checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from herenow.core.model import Custom, Mode, Sourced
from herenow.core.visibility import (
    Block,
    Preferences,
    PreferencesEdit,
    earliest,
    last_seen_when_blocked,
    outlasts_a_block,
)
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
    """The facts from which a presence starts. All defaults: an unknown user."""

    last_seen: int | None = None
    """The saved one, or a later one of an open run (`open_marks`)."""
    choice: Choice | None = None
    idle_after: int | None = None


@dataclass(frozen=True, slots=True)
class BlockRow:
    """`blocker` blocks `blocked` since `at`: neither sees the other. Keeps the last seen of each as the other knew it at
    that moment. `lifted_at`: the block has ended, and is kept because one of them is still hidden in another way."""

    blocker: str
    blocked: str
    at: int
    blocker_seen: int | None = None
    """The blocker's last seen, as `blocked` knew it."""
    blocked_seen: int | None = None
    lifted_at: int | None = None


def block_between(rows: Iterable[BlockRow], target: str) -> Block | None:
    """The block that counts of those between two users, for the viewer of `target`."""
    return earliest(
        (row.at, Block(row.blocker_seen if row.blocker == target else row.blocked_seen, row.lifted_at)) for row in rows
    )


def frozen_row(row: BlockRow, between: Sequence[BlockRow], preferences: Mapping[str, Preferences]) -> BlockRow:
    """The row to store for a new block. `between`: the blocks between the two users until now; `preferences`: theirs."""

    def seen(user: str, last_seen: int | None) -> int | None:
        return last_seen_when_blocked(last_seen, block_between(between, user), preferences.get(user, _DEFAULTS))

    return replace(
        row, blocker_seen=seen(row.blocker, row.blocker_seen), blocked_seen=seen(row.blocked, row.blocked_seen)
    )


def is_kept_when_lifted(preferences: Mapping[str, Preferences]) -> bool:
    """`preferences`: those of the two users."""
    return any(map(outlasts_a_block, preferences.values()))


_DEFAULTS = Preferences()


class TooManyBlocks(HerenowError):  # noqa: N818 - reads as what it is
    """The user has as many blocks as allowed; nothing was changed."""


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """The ledger's facts about one user and some others."""

    relations: Sequence[Relation]
    """In the order of the others; empty if not requested."""
    blocks: Sequence[BlockRow]
    mates: Set[str]
    """Those of the others that share a room with the user; empty if not requested."""
    preferences: Mapping[str, Preferences]


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A row of the change table: facts about `a` (and `b`) have changed; read them again. kind: `relation` (a, b: an edge or
    a block), `relations` (user a with all users, and in all rooms), `member` (room a, user b), `members` (room a, all
    members), `preferences` (user a), `void` (user a: tokens were revoked, or the user was deleted), `everything` (the
    database went back in time; all that was read from it may be wrong)."""

    kind: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Void:
    """Tokens of this user issued before `before` are void."""

    user: str
    before: int
    until: int
    """When the row may be deleted: every token that it concerns has expired by then."""
    erased: int | None = None
    """When the user was deleted; None: not deleted. Facts from before that are not stored again."""


class Ledger(Relations, Protocol):
    """The database. Every method raises `Unavailable` if it cannot be used. Writes are transactions; one that may have been
    committed all the same raises `UnknownOutcome`, and can be repeated without harm. Every write of relations or preferences
    adds to the change table in the same transaction."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]: ...

    @property
    def id(self) -> str:
        """Random, made when the ledger was created: nodes that share a live store must share a ledger."""

    async def open(self) -> None:
        """Connect. Creates an empty ledger and migrates SQLite. Raises `ConfigurationError` for a newer schema, and for an
        older one of a database that other nodes may be using."""

    async def close(self) -> None: ...

    async def schema(self) -> tuple[str | None, str]:
        """(revision found, newest revision known). Works without `open`; None: an empty database."""

    async def migrate(self) -> None:
        """Bring the schema up to date. Works without `open`."""

    # The start and the end of a presence

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        """The facts known of these users; users of which nothing is known are left out."""

    async def save_last_seen(self, rows: Mapping[str, int]) -> None:
        """Upsert; the later time is kept."""

    async def save_choices(self, rows: Sequence[Choice]) -> None:
        """Upsert; the choice with the higher version is kept."""

    async def chosen(self, after: str, limit: int) -> list[Choice]:
        """A page of choices other than the defaults, of users with ids after `after`, sorted by id."""

    async def set_idle_after(self, user: str, idle_after: int | None) -> None: ...

    # After the loss of a node and of its live store: users that were visible were last seen at the node's last stamp.
    #
    # A run is one epoch of a node. The last seen of a flagged user is the latest of the saved one, the stamps of the runs
    # and the times of the flags. A flag has no effect for users whose saved mode is invisible; for users with
    # visibility `nobody` it is no later than `hidden_last_seen`. A flag of a run without a stamp has no effect either.

    async def open_marks(self, run: str, here: Mapping[str, int], gone: Iterable[str]) -> None:
        """Flag the users `here` (→ last sign of life) as visible in this run, and clear the flag of `gone`."""

    async def stamp_run(self, run: str, at: int) -> bool:
        """Users flagged in this run were visible at `at`. Returns False if the run had no stamp: it is new, or was closed,
        and then its flags are gone."""

    async def end_run(self, run: str) -> None:
        """Remove the flags and the stamp of a run that stopped normally and has saved all last seens."""

    async def open_runs(self) -> dict[str, int]:
        """Open runs with their last stamps."""

    async def close_run(self, run: str, latest: int | None = None) -> int:
        """Save the last seens of the users flagged in this run, none later than `latest`, and remove the flags and the
        run. The later value is kept. Returns the number of these users."""

    async def close_runs(self) -> int:
        """When an embedded node starts: `close_run` of all runs."""

    # The graph

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        """Add or remove edges, all or nothing; returns how many rows changed something."""

    async def follows(self, a: str, b: str) -> bool: ...

    async def contact(self, a: str, b: str, now: int) -> tuple[bool, int | None]:
        """(in contact, until); `until` None: no end."""

    # Revoked tokens, deleted users

    async def void(self, row: Void) -> None:
        """Store the row; each column keeps its maximum. Adds a change `void` if something is new."""

    async def erase(self, row: Void) -> list[LedgerChange]:
        """`void`, and in the same transaction delete all facts about the user: last seen, choices, preferences, flags of
        runs, edges of every kind. Returns the changes that it added. While the row exists, `save_last_seen`, `save_choices`
        and `close_runs` ignore values from `erased` or earlier, which another node may still be writing."""

    async def voids(self, after: str, limit: int) -> list[Void]:
        """A page of `Void` rows of users with ids after `after`, sorted by id."""

    async def void_of(self, user: str) -> Void | None: ...

    async def forget_voids(self, now: int) -> None:
        """Delete the rows with `until` at or before `now`."""

    async def share_rooms(self, user: str, others: Sequence[str]) -> set[str]:
        """Those of `others` that are members of a room of the user."""

    # Preferences and blocks

    async def preferences(self, users: Sequence[str]) -> dict[str, Preferences]:
        """The preferences of these users; users with the defaults are left out."""

    async def set_preferences(self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
        """Apply the edit and return the result (`core.visibility.edited`). `last_seen`: the user's public last seen now."""

    async def blocked(self, user: str) -> list[str]:
        """Users that this user blocks, sorted by id, without lifted blocks."""

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        """Blocks between the user and any of the others, in either direction, lifted ones too, unsorted."""

    async def block(self, row: BlockRow, limit: int | None = None) -> bool:
        """Store a block; overwrites a lifted one. Returns False and changes nothing if it is in force already. The row has
        the last seens of two users who sign out now. A user who is hidden from the other already keeps the value frozen
        then (`frozen_row`), which is read in the same transaction: no other write can come between. Raises
        `TooManyBlocks` if the blocker has `limit` rows with other users, lifted ones included, and none with this one."""

    async def unblock(self, blocker: str, blocked: str, now: int) -> bool:
        """Remove the block; if one of the two is hidden in another way at that moment, keep it as lifted at `now` instead
        (`is_kept_when_lifted`). Returns False if none was in force."""

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
        """`between` (if `related`), `blocks` and `share_rooms` (if `rooms`) of the user and the others, and the
        `preferences` of `users`, in one query: every subscribe needs them."""

    # The change table

    async def note_changes(self, changes: Sequence[LedgerChange]) -> None:
        """Add rows to the change table for facts that are kept elsewhere: every node must read them again."""

    async def changes_head(self) -> int:
        """The highest id that any row ever had. Facts that are read after this call are at least as new."""

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        """Rows of the change table after this id, and the next id to pass. They become visible in order: none is missed."""

    async def forget_changes(self, before: int) -> None:
        """Delete rows of the change table with ids at or below `before`."""
