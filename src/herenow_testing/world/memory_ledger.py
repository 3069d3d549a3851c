"""A ledger in memory, for tests with simulated time.

The real ledgers reply from threads or sockets. On an event loop that jumps to the next timer such a reply would arrive at an
arbitrary simulated time, or after a deadline. This ledger replies at once and passes the same contract suite. It can be made
unavailable or slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from herenow.core.model import Mode
from herenow.core.visibility import Preferences, PreferencesEdit, edited
from herenow.errors import Unavailable
from herenow.ports import (
    BlockRow,
    Choice,
    LedgerChange,
    LedgerFacts,
    Relation,
    RelationRow,
    Remembered,
    TooManyBlocks,
    Void,
    frozen_row,
    lifted_row,
)

KINDS = ("follow", "contact", "room")


@dataclass
class _Run:
    stamp: int | None = None
    open: dict[str, int] = field(default_factory=dict)
    """User with a run marker → last sign of life when the marker was set."""

    def visible_at(self, user: str) -> int | None:
        return None if self.stamp is None or user not in self.open else max(self.stamp, self.open[user])


class MemoryLedger:
    """Its content stays when nodes close it, as in a file."""

    def __init__(self, ledger_id: str = "memory-ledger") -> None:
        self._id = ledger_id
        self.away = False
        """If True, every call raises `Unavailable`."""
        self.delay = 0.0
        """Duration of every call in seconds."""
        self.privacy_delay = 0.0
        """Additional duration in seconds of every call that reads or writes preferences or blocks."""
        self.calls = 0
        self.people: dict[str, Remembered] = {}
        self.runs: dict[str, _Run] = {}
        self.late: dict[str, int] = {}
        """User with a late row → its version."""
        self._follows: set[tuple[str, str]] = set()
        self._contacts: dict[tuple[str, str], int | None] = {}
        self._rooms: set[tuple[str, str]] = set()
        self._voids: dict[str, Void] = {}
        self._preferences: dict[str, Preferences] = {}
        self._blocks: dict[tuple[str, str], BlockRow] = {}
        self._changes: list[tuple[int, LedgerChange]] = []
        self._head = 0

    @property
    def id(self) -> str:
        return self._id

    async def open(self) -> None:
        await self._answer()

    async def close(self) -> None:
        pass

    async def schema(self) -> tuple[str | None, str]:
        return "memory", "memory"

    async def migrate(self) -> None:
        pass

    async def _answer(self) -> None:
        """Count the call, wait for `delay`, and raise `Unavailable` if the ledger is `away`. Every call awaits this
        first."""
        self.calls += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.away:
            raise Unavailable("The ledger is away.")

    # Last seen and choices

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        await self._answer()
        known = {user: self._remembered(user) for user in dict.fromkeys(users)}
        return {user: facts for user, facts in known.items() if facts != _STRANGER}

    def _remembered(self, user: str) -> Remembered:
        known = self.people.get(user, _STRANGER)
        for run in self.runs.values():
            at = self._last_seen_by(run, user)
            if at is not None:
                known = replace(known, last_seen=max(at, known.last_seen or 0))
        return known

    def _last_seen_by(self, run: _Run, user: str) -> int | None:
        """The last seen (epoch ms) that a user has by a run marker in this run. None if there is no marker, or if it
        may not count: the user hides, or was deleted later."""
        at = run.visible_at(user)
        choice = self.people.get(user, _STRANGER).choice
        hiding = self._preferences.get(user, Preferences())
        if at is None or not self._outlived(user, at) or (choice is not None and choice.mode is Mode.INVISIBLE):
            return None
        if hiding.hidden_at is None:
            return at
        return None if hiding.hidden_last_seen is None else min(at, hiding.hidden_last_seen)

    async def save_last_seen(self, rows: Mapping[str, int]) -> None:
        rows = dict(rows)
        await self._answer()
        for user, at in rows.items():
            self._save_last_seen(user, at)

    def _save_last_seen(self, user: str, at: int) -> None:
        if not self._outlived(user, at):
            return
        known = self.people.get(user, _STRANGER)
        self.people[user] = replace(known, last_seen=max(at, known.last_seen or 0))

    async def save_choices(self, rows: Sequence[Choice]) -> None:
        rows = tuple(rows)
        await self._answer()
        for row in rows:
            if self._save_choice(row):
                self._log_changes([LedgerChange("choice", row.user, "")])

    def _save_choice(self, row: Choice) -> bool:
        """Save a choice unless a newer one is stored. Returns True if the mode is or was invisible."""
        known = self.people.get(row.user, _STRANGER)
        newer = known.choice is None or row.version > known.choice.version
        if not newer or not self._outlived(row.user, row.version):
            return False
        self.people[row.user] = replace(known, choice=row)
        return row.mode is Mode.INVISIBLE or (known.choice is not None and known.choice.mode is Mode.INVISIBLE)

    async def choose_late(self, user: str, choose: Callable[[Choice | None], Choice]) -> Choice:
        await self._answer()
        choice = choose(self.people.get(user, _STRANGER).choice)
        self._save_choice(choice)
        self._mark_late(user, choice.version)
        return choice

    async def mark_late(self, user: str, version: int) -> None:
        await self._answer()
        self._mark_late(user, version)

    def _mark_late(self, user: str, version: int) -> None:
        self.late[user] = max(version, self.late.get(user, 0))
        self._log_changes([LedgerChange("choice", user, "")])

    async def late_users(self, after: str, limit: int) -> list[tuple[str, int]]:
        await self._answer()
        return sorted(row for row in self.late.items() if row[0] > after)[:limit]

    async def forget_late(self, applied: Mapping[str, int]) -> None:
        applied = dict(applied)
        await self._answer()
        self.late = {user: version for user, version in self.late.items() if version > applied.get(user, -1)}

    async def chosen(self, after: str, limit: int) -> list[Choice]:
        await self._answer()
        choices = (known.choice for _, known in sorted(self.people.items()))
        return [c for c in choices if c is not None and c.user > after and _is_more_than_default(c)][:limit]

    async def set_idle_after(self, user: str, idle_after: int | None) -> None:
        await self._answer()
        known = self.people.get(user, _STRANGER)
        if known.idle_after != idle_after:
            self.people[user] = replace(known, idle_after=idle_after)
            self._log_changes([LedgerChange("preferences", user, "")])
        if self.people.get(user) == _STRANGER:
            del self.people[user]

    # Runs

    async def open_marks(self, run: str, here: Mapping[str, int], gone: Iterable[str]) -> None:
        came, left = dict(here), set(gone)
        await self._answer()
        marks = self.runs.setdefault(run, _Run()).open
        marks |= came
        for user in left:
            marks.pop(user, None)

    async def stamp_run(self, run: str, at: int) -> bool:
        await self._answer()
        found = self.runs.setdefault(run, _Run())
        known = found.stamp is not None
        found.stamp = at
        return known

    async def open_runs(self) -> dict[str, int]:
        await self._answer()
        return {name: run.stamp for name, run in self.runs.items() if run.stamp is not None}

    async def end_run(self, run: str) -> None:
        await self._answer()
        self.runs.pop(run, None)

    async def close_run(self, run: str, latest: int | None = None) -> int:
        await self._answer()
        return len(self._close(run, latest))

    async def close_runs(self) -> int:
        await self._answer()
        return len({user for run in list(self.runs) for user in self._close(run, None)})

    def _close(self, run: str, latest: int | None) -> set[str]:
        closed = self.runs.pop(run, _Run())
        for user in closed.open:
            at = self._last_seen_by(closed, user)
            if at is not None:
                self._save_last_seen(user, at if latest is None else min(at, latest))
        return set() if closed.stamp is None else set(closed.open)

    # Relations

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]:
        targets = tuple(targets)
        await self._answer()
        return [self._between(viewer, target, now) for target in targets]

    def _between(self, a: str, b: str, now: int) -> Relation:
        mutual = (a, b) in self._follows and (b, a) in self._follows
        pair = _pair(a, b)
        until = self._contacts.get(pair)
        if pair not in self._contacts or (until is not None and until <= now):
            return Relation(mutual)
        return Relation(mutual, contact=True, contact_until=until)

    async def contacts(self, user: str, now: int) -> list[str]:
        await self._answer()
        edges = [*self._follows, *self._contacts]
        others = {b if a == user else a for a, b in edges if user in (a, b)}
        return sorted(other for other in others if self._between(user, other, now) != _STRANGERS)

    async def contact(self, a: str, b: str, now: int) -> tuple[bool, int | None]:
        [relation] = await self.between(a, [b], now)
        return relation.contact, relation.contact_until

    async def follows(self, a: str, b: str) -> bool:
        await self._answer()
        return (a, b) in self._follows

    async def is_member(self, room: str, user: str) -> bool:
        await self._answer()
        return (room, user) in self._rooms

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        wishes = {_edge(row): row for row in rows if row.kind == "room" or row.a != row.b}
        await self._answer()
        changed = [edge for edge, row in wishes.items() if self._put(edge, row)]
        self._log_changes(dict.fromkeys(map(_change, changed)))
        return len(changed)

    def _put(self, edge: tuple[str, str, str], row: RelationRow) -> bool:
        kind, *ends = edge
        pair = ends[0], ends[1]
        if kind == "contact":
            before = self._contacts.get(pair, 0)
            if row.remove:
                self._contacts.pop(pair, None)
            else:
                self._contacts[pair] = row.until
            return before != self._contacts.get(pair, 0)
        edges = self._follows if kind == "follow" else self._rooms
        if (pair in edges) is not row.remove:
            return False
        (edges.remove if row.remove else edges.add)(pair)
        return True

    # Revoked tokens, deleted users

    async def void(self, row: Void) -> None:
        await self._answer()
        if self._void(row):
            self._log_changes([LedgerChange("void", row.user, "")])

    async def erase(self, row: Void) -> list[LedgerChange]:
        await self._answer()
        user = row.user
        self._void(row)
        changes = {LedgerChange("void", user, ""): None}
        for edges in (self._follows, self._contacts, self._blocks):
            gone = [edge for edge in edges if user in edge]
            changes |= dict.fromkeys(LedgerChange("relation", *_pair(*edge)) for edge in gone)
        self._follows = {edge for edge in self._follows if user not in edge}
        self._contacts = {edge: until for edge, until in self._contacts.items() if user not in edge}
        self._blocks = {pair: row for pair, row in self._blocks.items() if user not in pair}
        self._preferences.pop(user, None)
        rooms = [edge for edge in self._rooms if edge[1] == user]
        changes |= dict.fromkeys(LedgerChange("member", *edge) for edge in rooms)
        self._rooms.difference_update(rooms)
        for run in self.runs.values():
            run.open.pop(user, None)
        self.people.pop(user, None)
        self.late.pop(user, None)
        changes[LedgerChange("preferences", user, "")] = None
        self._log_changes(changes)
        return list(changes)

    def _void(self, row: Void) -> bool:
        known = self._voids.get(row.user, Void(row.user, -1, 0))
        if row.before <= known.before and (row.erased or 0) <= (known.erased or 0):
            return False
        erased = known.erased if row.erased is None else row.erased
        self._voids[row.user] = Void(row.user, max(row.before, known.before), max(row.until, known.until), erased)
        return True

    def _outlived(self, user: str, at: int) -> bool:
        void = self._voids.get(user)
        return void is None or void.erased is None or at > void.erased

    async def voids(self, after: str, limit: int) -> list[Void]:
        await self._answer()
        return [void for user, void in sorted(self._voids.items()) if user > after][:limit]

    async def void_of(self, user: str) -> Void | None:
        await self._answer()
        return self._voids.get(user)

    async def forget_voids(self, now: int) -> None:
        await self._answer()
        self._voids = {user: void for user, void in self._voids.items() if void.until > now}

    async def share_rooms(self, user: str, others: Sequence[str]) -> set[str]:
        others = tuple(others)
        await self._answer()
        mine = {room for room, member in self._rooms if member == user}
        return {member for room, member in self._rooms if room in mine and member in others} - {user}

    # Preferences and blocks

    async def _answer_later(self) -> None:
        if self.privacy_delay:
            await asyncio.sleep(self.privacy_delay)
        await self._answer()

    async def preferences(self, users: Sequence[str]) -> dict[str, Preferences]:
        users = tuple(users)
        await self._answer_later()
        return {user: self._preferences[user] for user in users if user in self._preferences}

    async def set_preferences(self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
        await self._answer_later()
        before = self._preferences.get(user, _UNDECIDED)
        after = edited(before, edit, now, last_seen)
        if after != before:
            self._preferences[user] = after
            self._log_changes([LedgerChange("preferences", user, "")])
            if after == _UNDECIDED:
                del self._preferences[user]
        return after

    async def blocked(self, user: str) -> list[str]:
        await self._answer_later()
        rows = self._blocks.values()
        return sorted(row.blocked for row in rows if row.blocker == user and row.lifted_at is None)

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        others = tuple(dict.fromkeys(others))
        await self._answer_later()
        pairs = [pair for other in others for pair in ((user, other), (other, user))]
        return [self._blocks[pair] for pair in pairs if pair in self._blocks]

    async def block(self, row: BlockRow, limit: int | None = None) -> bool:
        await self._answer_later()
        known = self._blocks.get((row.blocker, row.blocked))
        if known is not None and known.lifted_at is None:
            return False
        if known is None and limit is not None and sum(pair[0] == row.blocker for pair in self._blocks) >= limit:
            lifted = [(old.lifted_at, pair) for pair, old in self._blocks.items() if old.lifted_at is not None]
            mine = [(at, pair) for at, pair in lifted if pair[0] == row.blocker]
            if not mine:
                raise TooManyBlocks(f"A user may block {limit} users.")
            del self._blocks[min(mine)[1]]
        pairs = ((row.blocker, row.blocked), (row.blocked, row.blocker))
        between = [self._blocks[pair] for pair in pairs if pair in self._blocks]
        self._blocks[row.blocker, row.blocked] = frozen_row(row, between, self._preferences)
        self._log_changes([LedgerChange("relation", row.blocker, row.blocked)])
        return True

    async def unblock(self, blocker: str, blocked: str, now: int, if_shown: int | None = None) -> bool:
        await self._answer_later()
        known = self._blocks.get((blocker, blocked))
        if known is None or known.lifted_at is not None:
            return False
        own = self._preferences.get(blocker, _UNDECIDED)
        self._blocks[blocker, blocked] = lifted_row(known, now, if_shown, own)
        self._log_changes([LedgerChange("relation", blocker, blocked)])
        return True

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
        return LedgerFacts(
            await self.between(user, others, now) if others and related else (),
            await self.blocks(user, others) if others else (),
            await self.share_rooms(user, others) if others and rooms else frozenset(),
            await self.preferences(users) if users else {},
        )

    # The table of changes

    async def note_changes(self, changes: Sequence[LedgerChange]) -> None:
        noted = tuple(changes)
        await self._answer()
        self._log_changes(noted)

    async def changes_head(self) -> int:
        await self._answer()
        return self._head

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        await self._answer()
        found = [row for row in self._changes if row[0] > after][:limit]
        return [change for _, change in found], found[-1][0] if found else after

    async def forget_changes(self, before: int) -> None:
        await self._answer()
        self._changes = [row for row in self._changes if row[0] > before]

    def _log_changes(self, changes: Iterable[LedgerChange]) -> None:
        for change in changes:
            self._head += 1
            self._changes.append((self._head, change))


_STRANGER = Remembered()
_STRANGERS = Relation()
_UNDECIDED = Preferences()


def _is_more_than_default(choice: Choice) -> bool:
    return choice.mode is not Mode.AUTO or choice.custom is not None or bool(choice.sources)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def _edge(row: RelationRow) -> tuple[str, str, str]:
    if row.kind not in KINDS:
        raise ValueError(f"{row.kind!r} is not a kind of relation: allowed are {', '.join(KINDS)}")
    return row.kind, *(_pair(row.a, row.b) if row.kind == "contact" else (row.a, row.b))


def _change(edge: tuple[str, str, str]) -> LedgerChange:
    kind, a, b = edge
    return LedgerChange("member", a, b) if kind == "room" else LedgerChange("relation", *_pair(a, b))
