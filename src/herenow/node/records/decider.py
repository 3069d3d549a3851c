"""Decides: computes a user's next record and commits it. At most one task at a time decides a user.

An event (connect, close, time-out, end of an outage) only marks the user dirty. The decision is always the same: record +
sessions held *now* + requested edits → settle → commit; on conflict repeat. So a close that overtakes its connect leaves no
session behind, and events during an outage need no code of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress

import structlog

from herenow.core.model import UNLEASED, Presence
from herenow.core.record import UnknownFormat
from herenow.core.settle import Edit
from herenow.errors import HerenowError, ProtocolError, Unavailable, UnknownOutcome
from herenow.kit.shared_timeout import SharedTimeout
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.outages import EndsWait
from herenow.node.people import PendingEdit, Person, without
from herenow.node.records.batch import BatchDecider, LostRace
from herenow.node.records.decision import NO_EDIT, Decision, answers_caller
from herenow.node.records.reader import Reader
from herenow.node.records.steps import DecisionSteps
from herenow.node.records.writer import Writer
from herenow.ports import Conflict

RETRY = 0.25  # seconds until users that could not be decided are retried
WAIT = 5.0  # seconds for which a caller waits for the commit of its edit
BATCH = 100  # users per task: enough that the cost of a task does not matter, fewer than a batch of the writer

log = structlog.get_logger(__name__)


class Decider:
    def __init__(
        self, context: Context, reader: Reader, writer: Writer, delivery: Delivery, steps: DecisionSteps
    ) -> None:
        self._people = context.people
        self._authority = context.authority
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._reader = reader
        self._writer = writer
        self._delivery = delivery
        self._steps = steps
        self._batch = BatchDecider(self, steps, writer, delivery, context.authority)
        self._dirty: dict[int, list[Person]] = {}  # shard → users that the next batch of the shard decides
        self._waiting: dict[Person, None] = {}
        self._ending: dict[Person, None] = {}
        """Users with a decision that would show them offline, while such decisions wait in their shard."""
        self._timer: asyncio.TimerHandle | None = None
        self._timeout = SharedTimeout(WAIT)
        self._authority.outages.subscribe(self.answer_waiting)
        self._trouble = ""

    def mark_dirty(self, person: Person) -> None:
        """Request a decision about the user's next record, because it may have to change. Cheap; call as often as
        needed."""
        record = person.record
        record.dirty = True
        if not record.deciding:
            record.deciding = True
            batch = self._dirty.get(person.shard)
            if batch is None or len(batch) >= BATCH:
                batch = self._dirty[person.shard] = [person]
                self._tasks.spawn(self._decide_dirty(person.shard, batch), "decide")
            else:
                batch.append(person)

    def resume(self, person: Person) -> None:
        """Check this user after the shard has recovered from data loss and the record was read again. If the record has
        all sessions that this node holds and no edit is pending, mark the sessions as committed; otherwise request a
        decision."""
        epoch = self._authority.epoch
        as_before = person.matches_record and all(
            session.lost_at is None and session.asserted_by == (UNLEASED if session.unleased else epoch)
            for session in person.held
        )
        if person.record.pending_edits or not as_before:
            self.mark_dirty(person)
        else:
            for session in person.held:
                session.asserted = person.record.presence.version

    async def apply(self, user: str, edit: Edit) -> Presence:
        """Apply an edit to the user's record, wait for the commit and return the new presence. After `WAIT` seconds, or
        while the store is unreachable, the edit is withdrawn, because much later it could undo a newer one. Raises
        `Unavailable` (it was not applied) or `UnknownOutcome` (it may have been; read before you repeat it)."""
        person = self._people.get(user)
        if person.shard in self._authority.outages.failing:
            self._people.release(person)
            raise Unavailable("The live store is unreachable.")
        pending = PendingEdit(edit, asyncio.get_running_loop().create_future())
        record = person.record
        with self._people.keeping(person):
            record.pending_edits += (pending,)
            try:
                self.mark_dirty(person)
                await self._timeout.wait_for(pending.done)
                return record.presence
            except TimeoutError:
                record.pending_edits = without(record.pending_edits, pending)
                raise _unfinished(pending) from None

    def answer_waiting(self, shards: Collection[int]) -> None:
        """Make all callers that wait for a commit to these shards raise an error at once. Call when an outage of the
        shards begins."""
        for person in self._people:
            if person.record.pending_edits and person.shard in shards:
                edits, person.record.pending_edits = person.record.pending_edits, ()
                for pending in edits:
                    if not pending.done.done():
                        pending.done.set_exception(_unfinished(pending))
                        pending.done.exception()

    @asynccontextmanager
    async def preloaded(self, users: Iterable[str]) -> AsyncIterator[None]:
        """Context manager for many decisions: reads the records that are not known yet with one call, and keeps all
        these users in memory until the context ends."""
        people = [self._people.get(user) for user in users]
        with self._people.keeping(*people):
            failing = self._authority.outages.failing
            unknown = [person for person in people if not person.record.known and person.shard not in failing]
            with suppress(Unavailable):  # each decision then reads for itself, and waits as usual
                await self._reader.load(unknown)
            yield

    async def wait_decided(self, user: str, *, afresh: bool = False) -> Presence:
        """Compute the user's next record, commit it if it differs, and return the presence; raises as `apply`.
        `afresh`: read a known record from the store again first."""
        person = self._people.find(user) if afresh else None
        if person is not None and person.record.known and person.shard not in self._authority.outages.failing:
            await self._reader.refresh([person])
        return await self.apply(user, NO_EDIT)

    async def decide_all(self, users: Iterable[str], *, afresh: bool = False) -> bool:
        """Compute and commit the next records of many users, in batches. Returns False if some failed or took longer
        than `WAIT` seconds; those that wait for the store are retried. `afresh`: read known records from the store
        again first."""
        people = [self._people.get(user) for user in dict.fromkeys(users)]
        with self._people.keeping(*people):
            if afresh:
                await self._reader.refresh([person for person in people if person.record.known])
            deciding = [
                self._tasks.spawn(self._is_decided(person), "decided") for person in people if person.record.deciding
            ]
            deciding += self._begin([person for person in people if not person.record.deciding])
            if not deciding:
                return True
            await asyncio.wait(deciding, timeout=WAIT)
            return all(task.done() and not task.cancelled() and task.result() for task in deciding)

    def _begin(self, people: list[Person]) -> list[asyncio.Task[bool]]:
        by_shard: dict[int, list[Person]] = {}
        for person in people:
            person.record.dirty = person.record.deciding = True
            by_shard.setdefault(person.shard, []).append(person)
        return [
            self._tasks.spawn(self._batch.decide_all(shard, found[start : start + BATCH]), "decide")
            for shard, found in by_shard.items()
            for start in range(0, len(found), BATCH)
        ]

    async def _is_decided(self, person: Person) -> bool:
        try:
            await self.wait_decided(person.user)
        except HerenowError:
            return False
        return True

    def retry_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for person in waiting:
            if self._authority.may_decide(person.shard):
                self.mark_dirty(person)
            else:
                self.wait(person)
        ending, self._ending = self._ending, {}
        for person in ending:
            if self._authority.outages.ends_wait(person.shard):
                self._wait_to_end(person)
            else:
                self.mark_dirty(person)

    def assert_held(self, shard: int) -> None:
        """Commit the sessions and heartbeats of this node that the shard's records lack. Call when an outage of the
        shard is over, before other nodes may show these users offline."""
        for person in self._people.in_shard(shard):
            if person.held and not (person.matches_record and person.heartbeats_in_record):
                self.mark_dirty(person)
        self.retry_waiting()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def ends_waiting(self) -> int:
        return len(self._ending)

    @property
    def trouble(self) -> str | None:
        return self._trouble if self._waiting and self._trouble else None

    def close(self) -> None:
        self._timeout.close()
        if self._timer is not None:
            self._timer.cancel()

    # The loop

    async def _decide_dirty(self, shard: int, people: list[Person]) -> None:
        if self._dirty.get(shard) is people:
            del self._dirty[shard]  # users marked from here on belong to the next batch
        await self._batch.decide(shard, people)

    def spawn_single(self, person: Person, lost: LostRace | None = None) -> asyncio.Task[bool]:
        person.record.dirty = True
        return self._tasks.spawn(self.decide_one(person, lost), "decide")

    async def decide_one(self, person: Person, lost: LostRace | None = None) -> bool:
        """Compute and commit the user's next record, again and again until no change is requested any more. Returns
        False if that failed or must wait. `lost`: a decision and the conflict that its commit met; the other record is
        adopted first."""
        try:
            if lost is not None:
                await self._steps.adopt_conflict(*lost)
            while person.record.dirty:
                person.record.dirty = False
                if not self._authority.may_decide(person.shard):
                    self.wait(person)
                    return False
                await self._settle(person)
                if person.unpublished:
                    self._delivery.publish(person)
            return True
        except Exception as error:  # noqa: BLE001 - reported there
            await self.handle_failure([person], error)
        finally:
            self.finish(person)
        return False

    async def _settle(self, person: Person) -> None:
        steps = self._steps
        while True:
            if not person.record.known or person.record.guessed:
                await steps.load(person)
            decision = steps.decide(person)
            if decision.changes_record:
                if not await self._commit(decision):
                    continue
            elif answers_caller(decision.outcome, decision.edits) and await steps.is_behind(person):
                continue
            if decision.outcome.signed_out:
                await self._writer.verify(person.shard)  # raises if they are missing because the shard lost data
            steps.conclude(decision)
            if not decision.outcome.more:
                return

    async def _commit(self, decision: Decision) -> bool:
        """Commit a decision. Returns False if another node committed first; then its record is adopted, and the caller
        must decide again."""
        person = decision.person
        self._steps.prepare(decision)
        try:
            [result] = await self._writer.commit(person.shard, (decision.write,), decision.epoch)
        finally:
            person.record.committing = None
        if isinstance(result, Conflict):
            await self._steps.adopt_conflict(decision, result)
            return False
        self._steps.take_effect(decision)
        return True

    def finish(self, person: Person) -> None:
        """End a task's work on this user, and start another task if a decision was requested meanwhile."""
        person.record.deciding = False
        if person.record.dirty and person not in self._waiting and person not in self._ending:
            self.mark_dirty(person)
        self._people.release(person)

    async def handle_failure(self, people: list[Person], error: Exception) -> None:
        """Handle an error of a decision about these users: read their records again, retry later, or fail their pending
        edits, depending on the error."""
        match error:
            case UnknownOutcome():
                await self._read_again(people)
            case EndsWait():
                for person in people:
                    self._wait_to_end(person)
            case Unavailable():
                self._metrics.engine_errors += 1
                self._trouble = str(error)
                for person in people:
                    self.wait(person)
            case UnknownFormat():
                unreadable = ProtocolError("unavailable", f"This user's record cannot be read: {error}.")
                for person in people:
                    self._steps.give_up(person, unreadable)
            case _:
                log.error("decide.failed", error=repr(error), exc_info=error)
                for person in people:
                    self._steps.give_up(person, error)

    async def _read_again(self, people: list[Person]) -> None:
        """Read the records of these users, because a commit got no answer; afterwards they are decided again."""
        for person in people:
            person.record.dirty = True
            for pending in person.record.pending_edits:
                pending.outcome_unknown = pending.edit is not NO_EDIT
        try:
            await self._reader.refresh(people)
        except HerenowError:
            for person in people:
                self.wait(person)

    def wait(self, person: Person) -> None:
        person.record.dirty = True
        for pending in person.record.pending_edits:
            pending.in_flight = False
        self._waiting[person] = None
        self._retry_soon()

    def _wait_to_end(self, person: Person) -> None:
        """Postpone a decision that would show this user offline, until that is allowed again in the shard or another
        change of the user is requested."""
        person.record.dirty = True
        self._ending[person] = None
        self._retry_soon()

    def _retry_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY, self.retry_waiting)


def _unfinished(pending: PendingEdit) -> HerenowError:
    """Return the error for a caller after its edit was withdrawn: `UnknownOutcome` if a commit may have applied it,
    otherwise `Unavailable`."""
    if pending.outcome_unknown or (pending.in_flight and pending.edit is not NO_EDIT):
        return UnknownOutcome("The live store did not answer; the outcome is unknown.")
    return Unavailable("The live store is unreachable.")
