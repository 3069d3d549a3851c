"""The steps of one decision: compute the outcome, prepare the write, apply the result; for single users and batches."""

from __future__ import annotations

from herenow.core.record import encode
from herenow.core.settle import droppable, ends, settle
from herenow.core.sources import without_choices
from herenow.errors import Unavailable
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.outages import EndsWait
from herenow.node.people import InFlightCommit, PendingEdit, Person
from herenow.node.records.decision import NO_EDIT, Decision, differ_in_stamps_only, log_note, restored
from herenow.node.records.ledger_writer import LedgerWriter
from herenow.node.records.reader import Reader
from herenow.node.records.record_events import RecordEvents
from herenow.ports import Conflict, Write


class DecisionSteps:
    def __init__(
        self, context: Context, reader: Reader, ledger_writer: LedgerWriter, delivery: Delivery, events: RecordEvents
    ) -> None:
        self._context = context
        self._reader = reader
        self._ledger_writer = ledger_writer
        self._delivery = delivery
        self._events = events

    def decide(self, person: Person) -> Decision:
        """Compute the user's next record from the known record, the sessions that this node holds and the pending
        edits; nothing is written. Raises `EndsWait` if it would show the user offline while that must wait."""
        record = person.record
        record.dirty = False  # this decision includes all that was marked dirty until now
        for pending in record.pending_edits:
            pending.in_flight = False
        first = self._events.enforce_deletion(person)
        epoch, outages = self._context.authority.epoch, self._context.authority.outages
        edits = record.pending_edits
        late = self._context.people.late.get(person.user)
        before = record.presence
        # Without a stored record the known choices are the ledger's, and the store must get them.
        if late is not None and record.stored is None and late.chosen >= before.chosen:
            before = without_choices(before)
        held = [(session, session.facts(epoch)) for session in person.held]
        outcome = settle(
            before,
            self._context.clock.now(),
            self._context.timings,
            epoch=epoch,
            held=[facts for _, facts in held],
            edits=[*first, *restored(person), *[pending.edit for pending in edits]],
            outage=outages.of(person.shard),
            newer=late,
        )
        requested = any(pending.edit is not NO_EDIT for pending in edits)
        if ends(before, outcome.presence) and outages.ends_wait(person.shard, requested=requested):
            raise EndsWait("no user is shown offline until every node has written its sessions")
        return Decision(person, before, record.stored, outcome, epoch, held, edits)

    def prepare(self, decision: Decision) -> None:
        """Encode the decision as a write for the store, and set `committing` of the user's record state. The caller
        clears `committing` when the store has answered."""
        person, before, outcome = decision.person, decision.before, decision.outcome
        record = encode(outcome.presence)
        decision.unsaved = outcome.unsaved or droppable(outcome.presence)
        unlogged = not outcome.news and differ_in_stamps_only(before, outcome.presence)
        note = None if unlogged else log_note(before, outcome.presence)
        decision.write = Write(person.user, decision.expected, record, outcome.wake_at, note, decision.unsaved)
        person.record.committing = InFlightCommit(record, outcome.presence, visible=outcome.news)
        for pending in decision.edits:
            pending.in_flight = True
        if outcome.news:
            self._delivery.mark_changed(person)

    def take_effect(self, decision: Decision) -> None:
        """Adopt the new record on this node, pass it to the ledger writer and publish it. Call after the commit."""
        person, outcome, record = decision.person, decision.outcome, decision.write.record
        assert record is not None
        if outcome.presence.version > person.record.presence.version:  # else the log delivered it before the answer
            person.record.adopt(record, outcome.presence, visible=outcome.news)
        self._reader.forget(person.user)
        self._ledger_writer.note(
            person.user, person.shard, decision.before, outcome.presence, record, unsaved=decision.unsaved
        )
        if outcome.change is not None:
            self._context.metrics.changes += 1
        if person.unpublished:
            self._delivery.publish(person)

    def conclude(self, decision: Decision) -> None:
        """Report the decision to the user's sessions, and answer the callers of the edits that it contains. Call when
        the record in the store contains the decision."""
        person = decision.person
        self._note_held(decision)
        if decision.outcome.applied:
            person.record.store_lacks = None
            self._answer(person, decision.edits)

    async def adopt_conflict(self, decision: Decision, conflict: Conflict) -> None:
        self._context.metrics.conflicts += 1
        self.check_whole(decision.person)
        await self._reader.adopt_conflict(decision.person, decision.expected, conflict.current)

    async def load(self, person: Person) -> None:
        try:
            await self._reader.load_batched(person)
        except Unavailable:
            self._context.authority.outages.on_failure((person.shard,))
            raise
        self.check_whole(person)

    async def is_behind(self, person: Person) -> bool:
        """Read the user's record again; returns True if it differs from the known one. Call before an answer that needs
        no commit: a commit would have detected an old record."""
        changed = bool(await self._reader.refresh([person]))
        self.check_whole(person)
        return changed

    def check_whole(self, person: Person) -> None:
        if not self._context.authority.may_decide(person.shard):
            raise Unavailable(f"shard {person.shard} is recovering lost data, or this node has no lease")

    def give_up(self, person: Person, error: Exception) -> None:
        edits, person.record.pending_edits = person.record.pending_edits, ()
        for pending in edits:
            if not pending.done.done():
                pending.done.set_exception(error)
                pending.done.exception()

    def _note_held(self, decision: Decision) -> None:
        outcome = decision.outcome
        live = {(s.device, s.holder) for s in outcome.presence.sessions if s.live}
        for session, facts in decision.held:
            if facts.lost_at is not None:
                if not outcome.more:
                    self._events.on_loss_committed(session)
            elif (session.device, facts.holder) in live:
                session.asserted = outcome.presence.version
                session.asserted_by = facts.holder
                if session.lost_at is None and session in decision.person.held:
                    self._events.on_committed(session)
            elif session.device in outcome.signed_out:
                self._events.on_ended(session, "signed_out")
            elif session.device in outcome.refused:
                self._events.on_ended(session, "refused")

    def _answer(self, person: Person, edits: tuple[PendingEdit, ...]) -> None:
        pending = person.record.pending_edits
        person.record.pending_edits = () if pending is edits else tuple([edit for edit in pending if edit not in edits])
        for edit in edits:
            if not edit.done.done():
                edit.done.set_result(None)
