"""The durable facts' port: `Ledger`, its values and its promises.

The contract suite (`herenow_testing.contracts.ledger`) checks them for every ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from herenow.core.model import Custom, Mode
from herenow.core.visibility import Preferences, PreferencesEdit
from herenow.ports.relations import Relation, Relations
from herenow.wire.relation_rows import RelationRow


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
class LedgerFacts:
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

    async def set_preferences(self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
        """Merge, and answer the result (`core.visibility.edited`). `last_seen`: the user's in public now."""

    async def blocked(self, user: str) -> list[str]:
        """Whom this user blocks, sorted by id; lifted ones are none."""

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        """Those between the user and any of the others, whoever placed them, lifted ones too; in no order."""

    async def block(self, row: BlockRow) -> bool:
        """False, and nothing changed: it stands there already. One that was lifted is written over."""

    async def unblock(self, blocker: str, blocked: str, lifted_at: int | None) -> bool:
        """Remove it, or keep it as lifted at that time. False: there was none in force."""

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
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
