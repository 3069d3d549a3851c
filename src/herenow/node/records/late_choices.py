"""Modes and custom statuses that the ledger has and the store may lack.

While the store cannot be written, a mode or custom status is saved in the ledger first, with a late row. All nodes learn of
it by the ledger's change table, show it from then on (`People.shown`), and apply it to the store as soon as they can write
it: every decision about the user includes it (`DecisionSteps.decide`). The highest version wins. So nothing is lost if the
node that accepted it dies.

Going invisible and coming back are in the change table also when the store has them, so that a node hides the user even if
it reads nothing from the store. A user stays here only until this node has seen in the store what the ledger has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from herenow.core.edits import set_idle_after
from herenow.core.model import Mode, Presence
from herenow.core.settle import Edit, droppable
from herenow.core.sources import version_after, with_newer_choices
from herenow.core.values import replace
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.delivery import Delivery
from herenow.node.people import People, Person
from herenow.node.records.cold_cache import from_ledger
from herenow.node.records.decider import Decider
from herenow.node.records.last_seen import RunMarkers
from herenow.node.records.ledger_writer import LedgerWriter, choice_of_record
from herenow.node.records.reader import Reader
from herenow.ports import Choice, Ledger, Remembered

MOST = 100_000
"""Users with late values, about 50 MB, beyond which this node refuses further ones."""

_NOTHING = Presence()
"""In place of the choices of a user of whom only the idle time is late."""

PART = 500  # users per read of the ledger and per batch of decisions

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class LateChoices:
    _context: Context
    _reader: Reader
    _decider: Decider
    _ledger_writer: LedgerWriter
    _markers: RunMarkers
    _delivery: Delivery
    _changed: dict[str, None] = field(default_factory=dict)
    """Users whose saved choices changed and must be read."""
    _unscanned: bool = False
    """True: late rows may exist of which no change was read."""
    _reading: bool = False
    """True: a task reads the users of `_changed`."""

    @property
    def _people(self) -> People:
        return self._context.people

    @property
    def _ledger(self) -> Ledger:
        return self._context.ledger

    @property
    def _late(self) -> dict[str, Presence]:
        return self._context.people.late

    async def choose(self, user: str, edit: Edit) -> Presence:
        """Apply an edit of mode or custom status to the ledger, because the store cannot be written, and show the
        result on this node. Returns the presence as the user's own devices see it. Raises `Unavailable` (nothing was
        done) or `UnknownOutcome`."""
        self._check_accepts(user)
        person = self._people.get(user)
        with self._people.keeping(person):
            if not person.record.known:
                await self._reader.load_from_ledger([person])
            now, timings = self._context.clock.now(), self._context.timings
            known = with_newer_choices(person.record.presence, self._late.get(user), now)
            last_seen = edit(known, now, timings).last_seen
            if last_seen is not None:  # of a user who hides: it stays as it was when hiding began
                await write_within(self._ledger.save_last_seen({user: last_seen}), LEDGER_DEADLINE)

            def choose(stored: Choice | None) -> Choice:
                base = with_newer_choices(known, from_ledger(Remembered(choice=stored)), now)
                chosen = replace(edit(base, now, timings), chosen=version_after(base, now))
                return choice_of_record(user, chosen)

            choice = await write_within(self._ledger.choose_late(user, choose), LEDGER_DEADLINE)
            self._learn(user, from_ledger(Remembered(last_seen, choice)))
            return self._people.shown(user, person.record.presence)

    async def save_idle_after(self, user: str) -> Presence:
        """Let any node apply the user's saved `idle_after` to the store after its return. Returns the presence as it is
        known now. Raises as `choose`."""
        self._check_accepts(user)
        await write_within(self._ledger.mark_late(user, self._context.clock.now()), LEDGER_DEADLINE)
        self._late.setdefault(user, _NOTHING)
        [(presence, _)] = await self._reader.read([user])
        return presence

    def _check_accepts(self, user: str) -> None:
        if self._ledger_writer.is_late:
            raise Unavailable("The live store and the database are unreachable.")
        if len(self._late) >= MOST and user not in self._late:
            raise Unavailable("The live store is unreachable, and too many changes wait for it.")

    # Learn

    def on_choice(self, user: str) -> None:
        """Read the user's saved mode and custom status, because the ledger's change table reports a change."""
        self._changed[user] = None
        self._unscanned = True  # it may have a late row for its idle time only
        if not self._reading:
            self._reading = True
            self._context.tasks.spawn(self._read_changed(), "choices")

    def scan_soon(self) -> None:
        """Read all late rows with the next `check`, because changes may have been missed."""
        self._unscanned = True

    async def start(self) -> None:
        await self._scan()

    async def _read_changed(self) -> None:
        try:
            while self._changed:
                users = list(self._changed)[:PART]
                for user in users:  # before the read: a change during it is read again
                    del self._changed[user]
                try:
                    await self._read(users)
                except BaseException:
                    self._changed.update(dict.fromkeys(users))
                    raise
        except Unavailable:  # `check` reads them again
            self._context.metrics.ledger_errors += 1
        finally:
            self._reading = False

    async def _read(self, users: Sequence[str]) -> dict[str, Remembered]:
        """Read the saved choices of these users, and show those that are newer than the known record."""
        before = {user: self._late.get(user) for user in users}
        found = await read_within(self._ledger.remembered(users), LEDGER_DEADLINE)
        for user in users:
            if user in found:
                self._learn(user, from_ledger(Remembered(found[user].last_seen, found[user].choice)))
            elif self._late.get(user) is before[user] and before[user] not in (None, _NOTHING):
                del self._late[user]  # deleted
        return found

    def _learn(self, user: str, newer: Presence) -> None:
        self._reader.forget(user)
        person = self._people.find(user)
        if person is not None and _is_in_store(person, newer):
            return
        if user in self._late and newer.chosen <= self._late[user].chosen:
            return
        hid = user in self._late and self._late[user].mode is Mode.INVISIBLE
        if hid and newer.mode is not Mode.INVISIBLE:
            newer = replace(newer, shown_at=newer.chosen)
        self._late[user] = newer
        if person is not None:
            self._show(person)

    def _show(self, person: Person) -> None:
        if person.held:
            self._markers.check(person.user)
        if not person.record.known or not (person.watchers.channels or person.watchers.outboxes):
            return
        decided_first = person.unpublished and not person.matches_record
        presence = self._people.shown(person.user, person.record.presence)
        if presence.hidden or not decided_first:
            self._delivery.mark_changed(person)
            self._delivery.publish(person)

    async def _scan(self) -> dict[str, int]:
        """Read all late rows, and the choices of users that are new among them. Returns version by user."""
        rows: dict[str, int] = {}
        after = ""
        self._unscanned = False
        while page := await read_within(self._ledger.late_users(after, PART), LEDGER_DEADLINE):
            after = page[-1][0]
            rows.update(page)
            await self._read([user for user, _ in page if user not in self._late])
            for user, _ in page:
                self._late.setdefault(user, _NOTHING)
        return rows

    # Apply

    async def check(self) -> None:
        """Apply late values to the shards that can be written, and forget those that the store has. Call every second."""
        if self._changed:
            await self._read_changed()
        if not self._unscanned and not any(map(self._may_apply, self._late)):
            return
        rows: dict[str, int] | None = None
        try:
            rows = await self._scan()
        except Unavailable:  # apply what is known here
            self._unscanned = True
            self._context.metrics.ledger_errors += 1
        users = list(filter(self._may_apply, self._late))
        for start in range(0, len(users), PART):
            try:
                await self._apply(users[start : start + PART], rows)
            except (Unavailable, UnknownOutcome) as error:
                log.warning("late_choices.wait", users=len(self._late), error=str(error))
                return

    def _may_apply(self, user: str) -> bool:
        authority, shard = self._context.authority, self._people.shard_of(user)
        return shard not in authority.outages.failing and authority.may_decide(shard)

    async def _apply(self, users: Sequence[str], rows: dict[str, int] | None) -> None:
        """Apply late values of these users to the store, and delete the late rows (`rows`; None: the ledger is
        unreachable) of those that the store has now."""
        saved = {} if rows is None else await self._read(users)
        people = [self._people.get(user) for user in users if user in self._late]
        with self._people.keeping(*people):
            await self._decider.decide_all([person.user for person in people], afresh=True)
            if rows is None:
                return
            late_rows = [person for person in people if person.user in rows]
            for person in late_rows:
                await self._apply_idle_after(person, saved.get(person.user))
            done = [person for person in people if self._has_all(person)]
            applied = {
                person.user: rows[person.user]
                for person in late_rows
                if person in done and _idle_after(saved.get(person.user)) == person.record.presence.idle_after
            }
            await write_within(self._ledger.forget_late(applied), LEDGER_DEADLINE)
            for person in done:
                if self._has_all(person) and (person.user not in rows or person.user in applied):
                    self._late.pop(person.user, None)

    async def _apply_idle_after(self, person: Person, saved: Remembered | None) -> None:
        if person.record.is_confirmed and person.record.presence.idle_after != _idle_after(saved):
            try:
                await self._decider.apply(person.user, set_idle_after(_idle_after(saved)))
            except HerenowError as error:  # again with the next `check`
                log.warning("late_choices.wait", users=len(self._late), error=str(error))

    def _has_all(self, person: Person) -> bool:
        late = self._late.get(person.user)
        return late is None or _is_in_store(person, late)


def _is_in_store(person: Person, late: Presence) -> bool:
    """True if the store has the modes and custom statuses of `late`, or newer ones. It needs no record for defaults."""
    record = person.record
    if not record.is_confirmed or late.chosen > record.presence.chosen:
        return False
    return record.stored is not None or droppable(record.presence)


def _idle_after(saved: Remembered | None) -> int | None:
    return None if saved is None else saved.idle_after
