"""The one door: every event only marks a user dirty; this decides what it amounts to, once per user at a time.

A connect, a close, activity, a sign-out, a wake-up, an audit, the end of an outage: each says "look at this user again".
Looking again is always the same: take the record as we know it, merge what we truly hold *now*, apply what was asked,
let the core settle, commit over the old bytes; on conflict again, until nothing changes. So a close that overtakes its
connect leaves no ghost, and what was kept while the store was away is asserted by the same lines as anything else.

Those of one shard who are marked in the same turn of the event loop are decided together (`_decide_together`): a task, a
wait and a wake-up for all of them. Whoever needs more than one plain commit goes on alone (`_decide`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import structlog

from herenow.core.model import UNLEASED, Presence
from herenow.core.record import UnknownFormat, encode
from herenow.core.settle import Edit, Held, Outcome, Timings, droppable, settle
from herenow.errors import HerenowError, ProtocolError, Unavailable, UnknownOutcome
from herenow.kit.clock import Clock
from herenow.kit.shared_timeout import SharedTimeout
from herenow.kit.tasks import Tasks
from herenow.node.delivery.hub import Hub
from herenow.node.metrics import Metrics
from herenow.node.people import Ask, HeldSession, People, Person, Writing, without
from herenow.node.records.authority import Standing
from herenow.node.records.decision import (
    Weighed,
    as_it_is,
    differ_in_stamps_only,
    note_of,
    restored,
    says_something,
)
from herenow.node.records.ledger_writer import Recorder
from herenow.node.records.reader import Reader
from herenow.node.records.writer import Writer
from herenow.ports import Conflict, Write

AGAIN = 0.25
"""Seconds after which those that could not be decided are tried again."""

PATIENCE = 5.0
"""Seconds somebody who asked for something waits for its commit."""

TOGETHER = 100
"""Decisions that share a task: enough for its price not to matter, and less than a batch of the writer."""

log = structlog.get_logger(__name__)


_Lost = tuple[Weighed, Conflict]


class Decider:
    def __init__(
        self,
        *,
        people: People,
        reader: Reader,
        writer: Writer,
        hub: Hub,
        recorder: Recorder,
        standing: Standing,
        clock: Clock,
        timings: Timings,
        tasks: Tasks,
        metrics: Metrics,
        on_ended: Callable[[HeldSession, str], None],
        on_standing: Callable[[HeldSession], None],
        bar: Callable[[Person], list[Edit]],
    ) -> None:
        """`on_ended(session, why)`: a session we hold must be closed: `signed_out` elsewhere, or `refused`.
        `on_standing(session)`: a session we hold stands in the record. `bar(person)` ends what may no longer be held, and
        answers what comes before everything that was asked."""
        self._people = people
        self._reader = reader
        self._writer = writer
        self._hub = hub
        self._recorder = recorder
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._tasks = tasks
        self._metrics = metrics
        self._on_ended = on_ended
        self._on_standing = on_standing
        self._bar = bar
        self._touched: dict[int, list[Person]] = {}
        """Shard → who is to be decided there, when their task begins."""
        self._waiting: dict[Person, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timeout = SharedTimeout(PATIENCE)
        self._trouble = ""

    def touch(self, person: Person) -> None:
        """Something about this user may have to change. Cheap, and never too often."""
        person.dirty = True
        if not person.deciding:
            person.deciding = True
            together = self._touched.get(person.shard)
            if together is None or len(together) >= TOGETHER:
                together = self._touched[person.shard] = [person]
                self._tasks.spawn(self._decide_touched(person.shard, together), "decide")
            else:
                together.append(person)

    def resume(self, person: Person) -> None:
        """After a loss, and after the record was read again: what we hold and stands there we have asserted. Everything else
        is decided."""
        epoch = self._standing.epoch
        as_before = person.stands and all(
            session.lost_at is None and session.asserted_by == (UNLEASED if session.unleased else epoch)
            for session in person.sessions
        )
        if person.asks or not as_before:
            self.touch(person)
        else:
            for session in person.sessions:
                session.asserted = person.presence.version

    async def ask(self, user: str, edit: Edit) -> Presence:
        """Apply an edit and wait for its commit, but not for long: who asked for something that would be done minutes
        later may have asked for something else meanwhile, elsewhere. Raises `Unavailable` (it is not done and will not
        be) or `UnknownOutcome` (look before you repeat it)."""
        person = self._people.get(user)
        person.pins += 1
        ask = Ask(edit, asyncio.get_running_loop().create_future())
        person.asks += (ask,)
        try:
            self.touch(person)
            await self._timeout.wait_for(ask.done)
            return person.presence
        except TimeoutError:
            person.asks = without(person.asks, ask)
            if ask.doubtful or (ask.in_flight and edit is not as_it_is):
                raise UnknownOutcome("The store did not answer; it may have been done.") from None
            raise Unavailable("The store is out of reach.") from None
        finally:
            person.pins -= 1
            self._people.release(person, self._clock.now())

    @asynccontextmanager
    async def acquainted(self, users: Iterable[str]) -> AsyncIterator[None]:
        """Many are about to be decided: read those we do not know at once instead of one by one, and keep them."""
        people = [self._people.get(user) for user in users]
        for person in people:
            person.pins += 1
        try:
            with suppress(Unavailable):  # whoever then decides finds that out, and waits as usual
                await self._reader.learn([person for person in people if not person.known])
            yield
        finally:
            self._release(people)

    def _release(self, people: Iterable[Person]) -> None:
        now = self._clock.now()
        for person in people:
            person.pins -= 1
            self._people.release(person, now)

    async def decided(self, user: str, *, afresh: bool = False) -> Presence:
        """Wait until everything known now about this user is committed. `afresh`: by the record as it is now."""
        if afresh and (person := self._people.find(user)) is not None and person.known:
            await self._reader.refresh([person])
        return await self.ask(user, as_it_is)

    async def all_decided(self, users: Iterable[str], *, afresh: bool = False) -> bool:
        """The same for many, at a fraction of the cost: nobody asked, so nobody is answered. Answers whether all of them
        are decided; who is not, is tried again as usual."""
        people = [self._people.get(user) for user in dict.fromkeys(users)]
        for person in people:
            person.pins += 1
        try:
            if afresh:
                await self._reader.refresh([person for person in people if person.known])
            deciding = [self._tasks.spawn(self._is_decided(p), "decided") for p in people if p.deciding]
            deciding += self._begin([person for person in people if not person.deciding])
            if not deciding:
                return True
            await asyncio.wait(deciding, timeout=PATIENCE)
            return all(task.done() and not task.cancelled() and task.result() for task in deciding)
        finally:
            self._release(people)

    def _begin(self, people: list[Person]) -> list[asyncio.Task[bool]]:
        by_shard: dict[int, list[Person]] = {}
        for person in people:
            person.dirty = person.deciding = True
            by_shard.setdefault(person.shard, []).append(person)
        return [
            self._tasks.spawn(self._decide_together(shard, found[start : start + TOGETHER]), "decide")
            for shard, found in by_shard.items()
            for start in range(0, len(found), TOGETHER)
        ]

    async def _is_decided(self, person: Person) -> bool:
        try:
            await self.decided(person.user)
        except HerenowError:
            return False
        return True

    def try_again(self) -> None:
        """Those that could not be decided: now, or a little later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for person in waiting:
            if self._standing.may_decide(person.shard):
                self.touch(person)
            else:
                self._wait(person)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def trouble(self) -> str | None:
        """Why decisions wait; None: none does."""
        return self._trouble if self._waiting and self._trouble else None

    def close(self) -> None:
        self._timeout.close()
        if self._timer is not None:
            self._timer.cancel()

    # Many at once

    async def _decide_touched(self, shard: int, people: list[Person]) -> None:
        if self._touched.get(shard) is people:
            del self._touched[shard]  # whoever is touched from here on is for the next
        await self._begin_together(shard, people)

    async def _decide_together(self, shard: int, people: list[Person]) -> bool:
        """Whether all of them are done; those who go on alone, too."""
        done, alone = await self._begin_together(shard, people)
        for task in alone:
            done = await task and done
        return done

    async def _begin_together(
        self, shard: int, people: list[Person]
    ) -> tuple[bool, list[asyncio.Task[bool]]]:
        """All of one shard, with one plain commit. Whether that was possible, and who goes on alone."""
        unfinished = dict.fromkeys(people)
        alone: list[asyncio.Task[bool]] = []
        try:
            if not self._standing.may_decide(shard):
                for person in people:
                    self._wait(person)
                return False, alone
            plain: list[Weighed] = []
            for person in people:
                weighed = self._weigh_plainly(person)
                if weighed is None and len(people) == 1:
                    # As with nearly everybody who arrives: this task is theirs.
                    del unfinished[person]
                    person.dirty = True
                    return await self._decide(person), alone
                if weighed is not None and weighed.outcome.presence is not weighed.before:
                    plain.append(weighed)
                    continue
                del unfinished[person]
                alone += [self._go_on_alone(person)] if weighed is None else self._conclude_plainly(weighed)
            done = not plain or await self._commit_together(shard, plain, unfinished, alone)
            return done, alone
        finally:
            for person in unfinished:
                person.committing = None
                self._finish(person)

    def _weigh_plainly(self, person: Person) -> Weighed | None:
        """Ready to be written, if there is anything to write. None: it may take more than that, or goes wrong."""
        if not person.known or person.guessed:
            return None
        try:
            weighed = self._weigh(person)
            outcome = weighed.outcome
            if outcome.signed_out or outcome.refused:
                return None
            if outcome.presence is not weighed.before:
                self._prepare(weighed)
            elif says_something(outcome, weighed.asks):
                return None
        except Exception:  # noqa: BLE001 - told by whoever tries it alone
            return None
        return weighed

    async def _commit_together(
        self,
        shard: int,
        plain: list[Weighed],
        unfinished: dict[Person, None],
        alone: list[asyncio.Task[bool]],
    ) -> bool:
        try:
            results = await self._writer.commit(shard, tuple([w.write for w in plain]), plain[0].epoch)
        except HerenowError as error:
            people = [weighed.person for weighed in plain]
            for person in people:
                person.committing = None
            await self._failed(people, error)
            return False
        for weighed, result in zip(plain, results, strict=True):
            weighed.person.committing = None
            del unfinished[weighed.person]
            if isinstance(result, Conflict):
                alone.append(self._go_on_alone(weighed.person, (weighed, result)))
            else:
                alone += self._conclude_plainly(weighed)
        return True

    def _conclude_plainly(self, weighed: Weighed) -> list[asyncio.Task[bool]]:
        """What is left to do alone, if anything is."""
        person = weighed.person
        try:
            if weighed.outcome.presence is not weighed.before:
                self._take_effect(weighed)
            self._conclude(weighed)
            if person.unpublished:
                self._hub.publish(person)
        except Exception as error:
            log.error("decide.failed", error=repr(error), exc_info=True)
            self._give_up(person, error)
            self._finish(person)
            return []
        if weighed.outcome.more or person.dirty:
            return [self._go_on_alone(person)]
        self._finish(person)
        return []

    def _go_on_alone(self, person: Person, lost: _Lost | None = None) -> asyncio.Task[bool]:
        person.dirty = True
        return self._tasks.spawn(self._decide(person, lost), "decide")

    # One alone

    async def _decide(self, person: Person, lost: _Lost | None = None) -> bool:
        """Whether it is done. `lost`: what we wanted to write, and found something else instead."""
        try:
            if lost is not None:
                await self._relearn(*lost)
            while person.dirty:
                person.dirty = False
                if not self._standing.may_decide(person.shard):
                    self._wait(person)
                    return False
                await self._settle(person)
                if person.unpublished:
                    self._hub.publish(person)
            return True
        except Exception as error:  # noqa: BLE001 - told there
            await self._failed([person], error)
        finally:
            self._finish(person)
        return False

    async def _failed(self, people: list[Person], error: Exception) -> None:
        """They could not be decided: what then?"""
        match error:
            case UnknownOutcome():
                await self._read_again(people)
            case Unavailable():
                self._metrics.engine_errors += 1
                self._trouble = str(error)
                for person in people:
                    self._wait(person)
            case UnknownFormat():
                unreadable = ProtocolError("unavailable", f"This user's record cannot be read: {error}.")
                for person in people:
                    self._give_up(person, unreadable)
            case _:
                log.error("decide.failed", error=repr(error), exc_info=error)
                for person in people:
                    self._give_up(person, error)

    def _finish(self, person: Person) -> None:
        person.deciding = False
        if person.dirty and person not in self._waiting:
            self.touch(person)
        self._people.release(person, self._clock.now())

    async def _settle(self, person: Person) -> None:
        """Until nothing changes any more."""
        while True:
            if not person.known or person.guessed:
                await self._learn(person)
            weighed = self._weigh(person)
            outcome = weighed.outcome
            if outcome.presence is not weighed.before:
                if not await self._commit(weighed):
                    continue
            elif says_something(outcome, weighed.asks) and await self._is_behind(person):
                continue
            if outcome.signed_out:
                await self._writer.verify(person.shard)  # or did the shard lose them?
            self._conclude(weighed)
            if not outcome.more:
                return

    # What both do

    def _weigh(self, person: Person) -> Weighed:
        """What we know and hold now, and what was asked for: what does it amount to?"""
        person.dirty = False  # all that was marked until now is looked at now
        for ask in person.asks:
            ask.in_flight = False
        first = self._bar(person)
        epoch = self._standing.epoch
        asks = person.asks
        held = [(session, session.facts(epoch)) for session in person.sessions]
        outcome = settle(
            person.presence,
            self._clock.now(),
            self._timings,
            epoch=epoch,
            held=[facts for _, facts in held],
            edits=[*first, *restored(person), *[ask.edit for ask in asks]],
        )
        return Weighed(person, outcome, epoch, held, asks)

    def _conclude(self, weighed: Weighed) -> None:
        person = weighed.person
        self._note_held(person, weighed.outcome, weighed.held)
        if weighed.outcome.applied:
            person.lost = None
            self._answer(person, weighed.asks)

    async def _is_behind(self, person: Person) -> bool:
        """Does the store know more than we do? A commit finds that out by itself; an answer without one must ask."""
        changed = bool(await self._reader.refresh([person]))
        if not self._standing.may_decide(person.shard):
            raise Unavailable(f"shard {person.shard} is not whole")
        return changed

    async def _learn(self, person: Person) -> None:
        await self._reader.learn_one(person)
        if not self._standing.may_decide(person.shard):
            raise Unavailable(f"shard {person.shard} is not whole")

    async def _commit(self, weighed: Weighed) -> bool:
        """False: somebody else was first, and we know now what they wrote."""
        person = weighed.person
        self._prepare(weighed)
        try:
            [result] = await self._writer.commit(person.shard, (weighed.write,), weighed.epoch)
        finally:
            person.committing = None
        if isinstance(result, Conflict):
            await self._relearn(weighed, result)
            return False
        self._take_effect(weighed)
        return True

    def _prepare(self, weighed: Weighed) -> None:
        """From here on it is being written, until the caller says otherwise."""
        person, before, outcome = weighed.person, weighed.before, weighed.outcome
        record = encode(outcome.presence)
        weighed.unsaved = outcome.unsaved or droppable(outcome.presence)
        silent = not outcome.news and differ_in_stamps_only(before, outcome.presence)
        note = None if silent else note_of(before, outcome.presence)
        weighed.write = Write(person.user, weighed.expected, record, outcome.wake_at, note, weighed.unsaved)
        person.committing = Writing(record, outcome.presence, news=outcome.news)
        for ask in weighed.asks:
            ask.in_flight = True
        if outcome.news:
            person.changed_at = self._clock.monotonic()

    async def _relearn(self, weighed: Weighed, conflict: Conflict) -> None:
        person = weighed.person
        self._metrics.conflicts += 1
        if not self._standing.may_decide(person.shard):
            raise Unavailable(f"shard {person.shard} is not whole")
        await self._reader.relearn(person, weighed.expected, conflict.current)

    def _take_effect(self, weighed: Weighed) -> None:
        """It is written."""
        person, outcome, record = weighed.person, weighed.outcome, weighed.write.record
        assert record is not None
        if outcome.presence.version > person.presence.version:  # else the log was faster than our answer
            person.adopt(record, outcome.presence, news=outcome.news)
        self._reader.forget(person.user)
        self._recorder.note(
            person.user, person.shard, weighed.before, outcome.presence, record, unsaved=weighed.unsaved
        )
        if outcome.change is not None:
            self._metrics.changes += 1
        if person.unpublished:
            self._hub.publish(person)

    def _note_held(self, person: Person, outcome: Outcome, held: list[tuple[HeldSession, Held]]) -> None:
        """What stands in the record now, we have asserted; a loss that was reported need not be reported again."""
        live = {(s.device, s.holder) for s in outcome.presence.sessions if s.live}
        for session, facts in held:
            if facts.lost_at is not None:
                if not outcome.more and session in person.sessions:
                    person.sessions = without(person.sessions, session)
            elif (session.device, facts.holder) in live:
                session.asserted = outcome.presence.version
                session.asserted_by = facts.holder
                if session.lost_at is None and session in person.sessions:
                    self._on_standing(session)
            elif session.device in outcome.signed_out:
                self._end(person, session, "signed_out")
            elif session.device in outcome.refused:
                self._end(person, session, "refused")

    def _end(self, person: Person, session: HeldSession, why: str) -> None:
        if session in person.sessions:
            person.sessions = without(person.sessions, session)
            if session.lost_at is None:
                self._on_ended(session, why)

    def _answer(self, person: Person, asks: tuple[Ask, ...]) -> None:
        left = () if person.asks is asks else [ask for ask in person.asks if ask not in asks]
        person.asks = tuple(left)
        for ask in asks:
            if not ask.done.done():
                ask.done.set_result(None)

    def _give_up(self, person: Person, error: Exception) -> None:
        asks, person.asks = person.asks, ()
        for ask in asks:
            if not ask.done.done():
                ask.done.set_exception(error)
                ask.done.exception()

    async def _read_again(self, people: list[Person]) -> None:
        """We do not know what our commit did: the store does."""
        for person in people:
            person.dirty = True
            for ask in person.asks:
                ask.doubtful = ask.edit is not as_it_is
        try:
            await self._reader.refresh(people)
        except HerenowError:
            for person in people:
                self._wait(person)

    def _wait(self, person: Person) -> None:
        person.dirty = True
        for ask in person.asks:
            ask.in_flight = False
        self._waiting[person] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AGAIN, self.try_again)
