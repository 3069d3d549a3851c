"""Records: reads, decides and writes the stored record of each user.

    mark_dirty ─▶ decider ─▶ steps (core.settle) ─▶ writer ─▶ engine
                     ▲                └─▶ ledger_writer ─▶ ledger
    reader ◀─ engine, cold_cache ◀─ ledger

`Records` is the face of this package; its attributes are the verbs that other parts use. It calls the parts above it
through `RecordEvents`.
"""

from __future__ import annotations

from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Person
from herenow.node.records.cold_cache import ColdCache
from herenow.node.records.decider import Decider
from herenow.node.records.decision import NO_EDIT, kept_after_deletion
from herenow.node.records.ledger_writer import STAMP_EVERY, LedgerWriter
from herenow.node.records.paging import page_of, pages
from herenow.node.records.reader import PART, Reader, is_at_hand
from herenow.node.records.record_events import DeletionRule, RecordEvents, SessionEvents, StoreEvents
from herenow.node.records.restore import restore_from_ledger
from herenow.node.records.steps import DecisionSteps
from herenow.node.records.writer import Writer

__all__ = [
    "NO_EDIT",
    "PART",
    "STAMP_EVERY",
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
        self.ledger_writer = ledger_writer = LedgerWriter(context)
        self.reader = reader = Reader(context, ColdCache(context), events)
        self.writer = writer = Writer(context, events)
        steps = DecisionSteps(context, reader, ledger_writer, delivery, events)
        self.decider = decider = Decider(context, reader, writer, delivery, steps)
        self._delivery = delivery

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
        self.refresh = reader.refresh
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

        # Calls upwards
        self.subscribe_sessions = events.subscribe_sessions
        self.subscribe_store = events.subscribe_store
        self.subscribe_deletions = events.subscribe_deletions
        self._events = events

    def report_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """The shard lacks something that it had: see `StoreEvents.on_loss`."""
        self._events.on_loss(shard, row, asked)

    def learn(self, person: Person, record: bytes) -> bool:
        """Take a record that came by the log. True: it is newer than the known one. Raises `UnknownFormat`."""
        return person.record.learn(record)

    def forget_lost_before(self, person: Person, erased: int) -> None:
        """The user was deleted at `erased`: do not restore anything from before that the store lost."""
        lost = person.record.store_lacks
        if lost is not None:
            person.record.store_lacks = kept_after_deletion(lost, erased)

    async def confirm_guesses(self) -> None:
        """Read the users that had to be taken from the ledger, and publish those that are known now."""
        for person in await self.reader.confirm_guesses():
            if person.matches_record:  # otherwise it is decided first
                self._delivery.publish(person)

    async def run_ledger_writer(self) -> None:
        await self.ledger_writer.run()

    async def stamp_run(self) -> None:
        await self.ledger_writer.stamp()

    async def finish(self) -> None:
        """Save what has not been saved. The last call of a node that stops, before `close`."""
        await self.ledger_writer.finish()

    def close(self) -> None:
        self.decider.close()

    @property
    def backlog(self) -> int:
        """Rows that the ledger has not saved yet."""
        return self.ledger_writer.backlog

    @property
    def save_late(self) -> bool:
        """True: the last flush did not reach the ledger."""
        return self.ledger_writer.is_late

    @property
    def save_trouble(self) -> str | None:
        """What a shard answers instead of dropping what the ledger has saved; None: no shard refuses."""
        return self.ledger_writer.trouble

    @property
    def waiting(self) -> int:
        """Users whose decision waits for the store."""
        return self.decider.waiting

    @property
    def ends_waiting(self) -> int:
        """Users who are shown offline only when ends no longer wait."""
        return self.decider.ends_waiting

    @property
    def trouble(self) -> str | None:
        """Why decisions wait; None: none does."""
        return self.decider.trouble
