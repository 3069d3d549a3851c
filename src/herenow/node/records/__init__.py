"""Records: reads, decides and writes the stored record of each user.

    mark_dirty ─▶ decider ─▶ steps (core.settle) ─▶ writer ─▶ engine
                     ▲                └─▶ ledger_writer, last_seen ─▶ ledger
                     └── late_choices ◀─▶ ledger
    reader ◀─ engine, cold_cache ◀─ ledger

`Records` is the face of this package. It calls the parts above through `RecordEvents`.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import LocalSession, Person
from herenow.node.records.cold_cache import ColdCache
from herenow.node.records.decider import Decider
from herenow.node.records.decision import NO_EDIT, kept_after_deletion
from herenow.node.records.last_seen import RunMarkers, UncommittedEnds
from herenow.node.records.late_choices import LateChoices
from herenow.node.records.ledger_writer import LedgerWriter
from herenow.node.records.paging import page_of, pages
from herenow.node.records.reader import PART, Reader, is_at_hand
from herenow.node.records.record_events import DeletionRule, RecordEvents, SessionEvents, StoreEvents
from herenow.node.records.restore import restore_from_ledger
from herenow.node.records.steps import DecisionSteps
from herenow.node.records.writer import Writer

__all__ = [
    "NO_EDIT",
    "PART",
    "DeletionRule",
    "Records",
    "SessionEvents",
    "StoreEvents",
    "is_at_hand",
    "page_of",
    "pages",
    "restore_from_ledger",
]


class Records:
    def __init__(self, context: Context, delivery: Delivery) -> None:
        events = RecordEvents()
        cold = ColdCache(context)
        self.markers = markers = RunMarkers(context)
        self.uncommitted_ends = UncommittedEnds(context, cold.forget)
        self.ledger_writer = ledger_writer = LedgerWriter(context, markers, self.uncommitted_ends)
        self.reader = reader = Reader(context, cold, events)
        self.writer = writer = Writer(context, events)
        steps = DecisionSteps(context, reader, ledger_writer, delivery, events)
        self.decider = decider = Decider(context, reader, writer, delivery, steps)
        self.late_choices = LateChoices(context, reader, decider, ledger_writer, markers, delivery)
        self._context, self._delivery = context, delivery

        # Decide
        self.mark_dirty = decider.mark_dirty
        self.apply = decider.apply
        self.wait_decided = decider.wait_decided
        self.decide_all = decider.decide_all
        self.preloaded = decider.preloaded
        self.resume = decider.resume
        self.retry_waiting = decider.retry_waiting
        self.assert_held = decider.assert_held

        # Read
        self.load = reader.load
        self.load_from_ledger = reader.load_from_ledger
        self.read = reader.read
        self.forget = reader.forget
        self.forget_all = reader.forget_all

        # Write
        self.verify = writer.verify
        self.verify_recent = writer.verify_recent
        self.probe = writer.probe
        self.rejoin = writer.rejoin
        self.still_joined = writer.still_joined
        self.wait_saved = ledger_writer.wait_saved
        self.hold_drops = ledger_writer.hold_drops
        self.run_ledger_writer = ledger_writer.run
        self.stamp_run = markers.stamp
        self.stamp_every = markers.every
        self.close_retired_runs = markers.close_retired
        self.start_run_over = markers.start_over
        self.finish = ledger_writer.finish
        self.close = decider.close

        # Calls upwards
        self.subscribe_sessions = events.subscribe_sessions
        self.subscribe_store = events.subscribe_store
        self.subscribe_deletions = events.subscribe_deletions
        self._events = events

    def report_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        self._events.on_loss(shard, row, asked)

    def learn(self, person: Person, record: bytes) -> bool:
        """Adopt a record from the log as the user's known record if its version is newer; returns True if it was
        adopted. Raises `UnknownFormat`."""
        learned = person.record.learn(record)
        if learned and person.held:
            self.markers.check(person.user)
        return learned

    async def refresh(self, people: Sequence[Person]) -> list[Person]:
        """Read the records of these known users from the store again; returns the users with a changed presence. Use it
        outside of a decision: it also has the run markers of these users checked (`RunMarkers.check`)."""
        changed = await self.reader.refresh(people)
        for person in changed:
            if person.held:
                self.markers.check(person.user)
        return changed

    def note_end(self, session: LocalSession) -> None:
        """Make sure that the last seen of a lost session gets into the ledger, even if the store does not accept the
        loss. Call when a session of this node is lost."""
        self.uncommitted_ends.note(session)
        self.markers.check(session.person.user)

    def forget_lost_before(self, person: Person, erased: int) -> None:
        """Discard values of the user that the store lost or lacks, if they are older than the deletion at `erased` (ms).
        Otherwise they would be written to the store again."""
        late = self._context.people.late.get(person.user)
        if late is not None and kept_after_deletion(late, erased) is None:
            del self._context.people.late[person.user]
        lost = person.record.store_lacks
        if lost is not None:
            person.record.store_lacks = kept_after_deletion(lost, erased)

    async def confirm_guesses(self) -> None:
        """Read from the store the users that were loaded from the ledger while the store was unreachable, and publish
        those with a confirmed presence."""
        for person in await self.reader.confirm_guesses():
            if person.matches_record:  # otherwise the decision publishes it
                self._delivery.publish(person)

    @property
    def backlog(self) -> int:
        return self.ledger_writer.backlog

    @property
    def save_late(self) -> bool:
        return self.ledger_writer.is_late

    @property
    def save_trouble(self) -> str | None:
        """The error of a shard at the last attempt to read or clear its flags "unsaved", which mark records that the
        ledger does not have yet; None: no shard failed."""
        return self.ledger_writer.trouble

    @property
    def waiting(self) -> int:
        """Number of users with a decision that could not be made or committed, and is retried."""
        return self.decider.waiting

    def unwritable(self, user: str) -> bool:
        """True while the shard with this user's record cannot be written. Heartbeats are then kept in memory only."""
        return self._context.people.shard_of(user) in self._context.authority.outages.failing

    @property
    def ends_waiting(self) -> int:
        """Number of users that are not shown offline yet, because another node may hold a session of theirs that it
        could not commit (`node/outages`)."""
        return self.decider.ends_waiting

    @property
    def trouble(self) -> str | None:
        """The store's error that makes decisions about users wait; None: no decision waits because of an error."""
        return self.decider.trouble
