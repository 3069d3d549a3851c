"""The one door: every event only marks a user dirty; this decides what it amounts to, once per user at a time.

A connect, a close, activity, a sign-out, a wake-up, an audit, the end of an outage: each says "look at this user again".
Looking again is always the same: take the record as we know it, merge what we truly hold *now*, apply what was asked,
let the core settle, commit over the old bytes; on conflict again, until nothing changes. So a close that overtakes its
connect leaves no ghost, and what was kept while the store was away is asserted by the same lines as anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import structlog

from herenow.core.edits import set_custom, set_mode
from herenow.core.machine import Edit, Held, Outcome, Timings, droppable, settle
from herenow.core.model import UNLEASED, Presence
from herenow.core.record import UnknownFormat, encode
from herenow.core.values import replace
from herenow.core.visibility import status_in_public
from herenow.errors import HerenowError, ProtocolError, Unavailable, UnknownOutcome
from herenow.ports import Conflict, Write
from herenow.service.clock import Clock
from herenow.service.hub import Hub
from herenow.service.metrics import Metrics
from herenow.service.patience import Patience
from herenow.service.people import Ask, HeldSession, People, Person, Writing
from herenow.service.reader import Reader
from herenow.service.recorder import Recorder
from herenow.service.standing import Standing
from herenow.service.tasks import Tasks
from herenow.service.writer import Writer

AGAIN = 0.25
"""Seconds after which those that could not be decided are tried again."""

PATIENCE = 5.0
"""Seconds somebody who asked for something waits for its commit."""

log = structlog.get_logger(__name__)


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
        self._waiting: dict[Person, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._patience = Patience(PATIENCE)
        self._trouble = ""

    def touch(self, person: Person) -> None:
        """Something about this user may have to change. Cheap, and never too often."""
        person.dirty = True
        if not person.deciding:
            person.deciding = True
            self._tasks.spawn(self._decide(person), "decide")

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
        person.asks.append(ask)
        try:
            self.touch(person)
            await self._patience.wait_for(ask.done)
            return person.presence
        except TimeoutError:
            if ask in person.asks:
                person.asks.remove(ask)
            if ask.doubtful:
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
        return await self.ask(user, _as_it_is)

    async def all_decided(self, users: Iterable[str], *, afresh: bool = False) -> bool:
        """The same for many, at a fraction of the cost: nobody asked, so nobody is answered. Answers whether all of them
        are decided; who is not, is tried again as usual."""
        people = [self._people.get(user) for user in users]
        for person in people:
            person.pins += 1
        try:
            if afresh:
                await self._reader.refresh([person for person in people if person.known])
            deciding = [self._begin(person) for person in people]
            await asyncio.wait(deciding, timeout=PATIENCE)
            return all(task.done() and not task.cancelled() and task.result() for task in deciding)
        finally:
            self._release(people)

    def _begin(self, person: Person) -> asyncio.Task[bool]:
        if person.deciding:
            return self._tasks.spawn(self._is_decided(person), "decided")
        person.dirty = person.deciding = True
        return self._tasks.spawn(self._decide(person), "decide")

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
        self._patience.close()
        if self._timer is not None:
            self._timer.cancel()

    async def _decide(self, person: Person) -> bool:
        """Whether it is done."""
        try:
            while person.dirty:
                person.dirty = False
                if not self._standing.may_decide(person.shard):
                    self._wait(person)
                    return False
                await self._settle(person)
                if person.unpublished:
                    self._hub.publish(person)
            return True
        except UnknownOutcome:
            for ask in person.asks:
                ask.doubtful = ask.edit is not _as_it_is
            await self._read_again(person)
        except Unavailable as error:
            self._metrics.engine_errors += 1
            self._trouble = str(error)
            self._wait(person)
        except UnknownFormat as error:
            self._give_up(
                person, ProtocolError("unavailable", f"This user's record cannot be read: {error}.")
            )
        except Exception as error:
            log.error("decide.failed", error=repr(error), exc_info=True)
            self._give_up(person, error)
        finally:
            person.deciding = False
            if person.dirty and person not in self._waiting:
                self.touch(person)
            self._people.release(person, self._clock.now())
        return False

    async def _settle(self, person: Person) -> None:
        """Until nothing changes any more."""
        while True:
            await self._learn(person)
            person.dirty = False  # all that was marked until now is looked at now
            first = self._bar(person)
            epoch = self._standing.epoch
            asks = tuple(person.asks)
            held = [(session, session.facts(epoch)) for session in person.sessions]
            before = person.presence
            outcome = settle(
                before,
                self._clock.now(),
                self._timings,
                epoch=epoch,
                held=[facts for _, facts in held],
                edits=[*first, *_restored(person), *(ask.edit for ask in asks)],
            )
            if outcome.presence is not before:
                if not await self._commit(person, outcome, epoch):
                    continue
            elif _says_something(outcome, asks) and await self._is_behind(person):
                continue
            if outcome.signed_out:
                await self._writer.verify(person.shard)  # or did the shard lose them?
            self._note_held(person, outcome, held)
            if outcome.applied:
                person.lost_choice = None
                self._answer(person, asks)
            if not outcome.more:
                return

    async def _is_behind(self, person: Person) -> bool:
        """Does the store know more than we do? A commit finds that out by itself; an answer without one must ask."""
        changed = bool(await self._reader.refresh([person]))
        if not self._standing.may_decide(person.shard):
            raise Unavailable(f"shard {person.shard} is not whole")
        return changed

    async def _learn(self, person: Person) -> None:
        if not person.known or person.guessed:
            await self._reader.learn_one(person)
            if not self._standing.may_decide(person.shard):
                raise Unavailable(f"shard {person.shard} is not whole")

    async def _commit(self, person: Person, outcome: Outcome, epoch: str) -> bool:
        """False: somebody else was first, and we know now what they wrote."""
        before, expected = person.presence, person.record
        record = encode(outcome.presence)
        unsaved = outcome.unsaved or droppable(outcome.presence)
        silent = not outcome.news and _differ_in_stamps_only(before, outcome.presence)
        note = None if silent else _note(before, outcome.presence)
        started = self._clock.monotonic()
        person.committing = Writing(record, outcome.presence, news=outcome.news)
        if outcome.news:
            person.changed_at = started
        try:
            result = await self._writer.commit(
                person.shard, Write(person.user, expected, record, outcome.wake_at, note, unsaved), epoch
            )
        finally:
            person.committing = None
        if isinstance(result, Conflict):
            self._metrics.conflicts += 1
            if not self._standing.may_decide(person.shard):
                raise Unavailable(f"shard {person.shard} is not whole")
            await self._reader.relearn(person, expected, result.current)
            return False
        if outcome.presence.version > person.presence.version:  # else the log was faster than our answer
            person.adopt(record, outcome.presence, news=outcome.news)
        self._reader.forget(person.user)
        self._recorder.note(person.user, person.shard, before, outcome.presence, record, unsaved=unsaved)
        if outcome.change is not None:
            self._metrics.changes += 1
        if person.unpublished:
            self._hub.publish(person)
        return True

    def _note_held(self, person: Person, outcome: Outcome, held: list[tuple[HeldSession, Held]]) -> None:
        """What stands in the record now, we have asserted; a loss that was reported need not be reported again."""
        live = {(s.device, s.holder) for s in outcome.presence.sessions if s.live}
        for session, facts in held:
            if facts.lost_at is not None:
                if not outcome.more and session in person.sessions:
                    person.sessions.remove(session)
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
            person.sessions.remove(session)
            if session.lost_at is None:
                self._on_ended(session, why)

    def _answer(self, person: Person, asks: tuple[Ask, ...]) -> None:
        for ask in asks:
            if ask in person.asks:
                person.asks.remove(ask)
            if not ask.done.done():
                ask.done.set_result(None)

    def _give_up(self, person: Person, error: Exception) -> None:
        asks, person.asks = person.asks, []
        for ask in asks:
            if not ask.done.done():
                ask.done.set_exception(error)
                ask.done.exception()

    async def _read_again(self, person: Person) -> None:
        """We do not know what our commit did: the store does."""
        person.dirty = True
        try:
            await self._reader.refresh([person])
        except HerenowError:
            self._wait(person)

    def _wait(self, person: Person) -> None:
        person.dirty = True
        self._waiting[person] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AGAIN, self.try_again)


def _as_it_is(presence: Presence, now: int, timings: Timings) -> Presence:
    return presence


def _restored(person: Person) -> list[Edit]:
    """What was chosen and lost is chosen again, unless something else was chosen since."""
    lost = person.lost_choice
    if lost is None:
        return []

    def restore(presence: Presence, now: int, timings: Timings) -> Presence:
        if presence.chosen >= lost.chosen:
            return presence
        presence = set_mode(lost.mode, lost.mode_until)(presence, now, timings)
        return set_custom(lost.custom)(presence, now, timings)

    return [restore]


def _says_something(outcome: Outcome, asks: Iterable[Ask]) -> bool:
    """Somebody takes it for an answer that nothing had to change."""
    return bool(outcome.refused) or any(ask.edit is not _as_it_is for ask in asks)


def _differ_in_stamps_only(before: Presence, after: Presence) -> bool:
    """Then it need not be in the log. Everything else must be, news or not: other nodes decide by the record they know,
    and one that is behind in stamps alone expects things too early, never too late."""
    if len(before.sessions) != len(after.sessions):
        return False
    for old, new in zip(before.sessions, after.sessions, strict=True):
        if old is not new and old != replace(new, seen_at=old.seen_at, active_at=old.active_at):
            return False
    return before == replace(after, version=before.version, sessions=before.sessions)


def _note(before: Presence, after: Presence) -> bytes:
    """Beside the record in the log: what others saw before and see now, for whoever counts."""
    return bytes((status_in_public(before) << 4 | status_in_public(after),))
