"""Who has fallen silent, and whose record must hear of life before it takes somebody for idle or dead?

Both are found by a wheel, not by a scan: a beat costs nothing here. Whom the wheel takes for silent is lost only after our
sockets have been read once more, since a busy process hears late; after a process stood still, only after they have been
asked and had time to answer. Another reason to look at a held session after a while is the reason to change this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from herenow.core.model import Idle, Session
from herenow.core.sessions import idle_limit
from herenow.kit.loop_budget import LoopBudget
from herenow.kit.wheel import Wheel
from herenow.node.context import Context
from herenow.node.people import LocalSession, without
from herenow.node.records import Records

MARGIN = 5_000
"""Milliseconds before a device falls idle in the record at which its holder commits fresher activity, so that no other
node's reaper shows somebody away who is not. A tenth of `idle_after` where that is less, but not less than it takes to
turn the wheel."""

SLACK = 10
"""A process that stood still for longer than this part of `dead_after` has asked its sockets so late that their answers may
be late as well. Whoever lives is asked after 1¾ `beat_every` at the latest (`websocket.pinger`), which is at most ⅞ of
`dead_after`: an eighth is left for us and for the network. A loop that is merely busy stays below."""

STILL = 3_000
"""Milliseconds after which a process that did not turn its wheel stood still: when what it reads then has arrived, it does
not know. A third of a lease, which is how exact a last seen is where a node was in trouble."""

ROUNDS = 3
"""Turns of the event loop before whoever seems silent is looked at again: in each of them it reads tens of thousands of
sockets, so that what had arrived is read by then."""

BUDGET = 200
"""Sessions lost in one iteration of the loop, about 20 ms of work: ten thousand at once would hold it for seconds, and
every other time-out with it."""

AFTER_FAILURE = 1_000
"""Milliseconds until somebody is looked at again who could not be lost by a mistake of ours."""

TURN = 0.25
"""Seconds between two turns of the wheel."""

OnSilent = Callable[[LocalSession, int], None]

log = structlog.get_logger(__name__)


class LivenessMonitor:
    def __init__(self, context: Context, records: Records) -> None:
        self._people = context.people
        self._clock = context.clock
        self._timings = context.timings
        self._authority = context.authority
        self._records = records
        self._every = int(TURN * 1000)
        self._wheel: Wheel[LocalSession] = Wheel(self._look)
        self._turned_at: int | None = None
        self._still = (0, 0)
        """When this process last stood still: from, until."""
        self._patient_until = 0
        self._suspects: list[LocalSession] = []
        """Whose time has come by the wheel."""
        self._losing = False
        self._budget = LoopBudget(BUDGET)

    def turn(self) -> None:
        """Look at those whose time has come; a few times a second."""
        now = self._clock.now()
        stopped = 0 if self._turned_at is None else now - self._turned_at
        if stopped > self._timings.dead_after // SLACK + self._every:
            self._patient_until = now + min(stopped, self._timings.dead_after)
        if stopped > STILL:
            self._still = now - stopped, now
        self._turned_at = now
        self._wheel.turn(now)

    def arrived_by(self, read_at: int) -> int:
        """When what was read then had arrived, at the earliest: then, unless this process stood still before it."""
        if self._turned_at is not None and read_at - self._turned_at > STILL:
            return self._turned_at  # and has not turned the wheel since
        begin, end = self._still
        return begin if begin < read_at <= end + self._every else read_at

    @property
    def suspicious(self) -> bool:
        """Somebody seems silent, and nobody is about to `lose` them."""
        return bool(self._suspects) and not self._losing

    async def lose(self, on_silent: OnSilent) -> None:
        """Lose the sessions that seem silent and still are after everything that has arrived was read. Call when
        `suspicious`, in a task of its own: it may take long. `on_silent`: called with a leased session and the time at
        which it is lost."""
        self._losing = True
        try:
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            suspects, self._suspects = self._suspects, []
            for session in suspects:
                await self._budget.take()
                self._look_for_sure(session, self._clock.now(), on_silent)
        finally:
            self._losing = False

    def check_by(self, session: LocalSession, at: int) -> None:
        """Not later than this; an entry in the wheel that comes later is skipped then."""
        if session.check_at is None or at < session.check_at:
            session.check_at = at
            self._wheel.put(session, at)

    def fresh_until(self, session: LocalSession, committed: Session) -> int:
        """From then on activity is news to a record in which the device is not idle."""
        idle_after = idle_limit(session.person.record.presence, self._timings)
        return committed.active_at + idle_after - _margin(idle_after)

    def _look(self, session: LocalSession, now: int) -> int | None:
        if session.check_at is None or now < session.check_at:
            return None  # another entry counts
        if session.lost_at is not None or session not in session.person.held:
            session.check_at = None
        elif now - session.seen_at <= self._timings.dead_after:  # a beat in the last millisecond counts
            session.check_at = self._keep_record_fresh(session, now)
        elif now < self._patient_until:
            session.check_at = self._patient_until
        else:
            session.check_at = None
            self._suspects.append(session)
        return session.check_at

    def _look_for_sure(self, session: LocalSession, now: int, on_silent: OnSilent) -> None:
        """What goes wrong with one is no reason to take the others for alive."""
        try:
            self._look_closely(session, now, on_silent)
        except Exception as error:
            log.error("silence.failed", error=repr(error), exc_info=True)
            self.check_by(session, now + AFTER_FAILURE)

    def _look_closely(self, session: LocalSession, now: int, on_silent: OnSilent) -> None:
        if session.lost_at is not None or session not in session.person.held:
            return
        if now - session.seen_at <= self._timings.dead_after:
            self.check_by(session, self._keep_record_fresh(session, now))
        elif now < self._patient_until:
            self.check_by(session, self._patient_until)
        else:
            self._silent(session, on_silent)

    def _silent(self, session: LocalSession, on_silent: OnSilent) -> None:
        if session.unleased:  # the record has its deadline and loses it by itself
            session.person.held = without(session.person.held, session)
            self._people.release(session.person)
            return
        on_silent(session, max(session.seen_at + self._timings.dead_after, self._patient_until))

    def _keep_record_fresh(self, session: LocalSession, now: int) -> int:
        """Fresher stamps reach the record before it would fall due by its own. Answers when to look again."""
        again = session.seen_at + self._timings.dead_after + 1
        committed = session.in_record(self._authority.epoch)
        if committed is None:
            return min(again, now + 1_000)
        if committed.idle is Idle.NO:
            again = min(again, self._refresh_activity(session, committed, now))
        if session.unleased:
            again = min(again, self._refresh_life(session, committed, now))
        return again

    def _refresh_activity(self, session: LocalSession, committed: Session, now: int) -> int:
        due = self.fresh_until(session, committed)
        if now < due:
            return due
        if session.active_at > committed.active_at:
            self._records.mark_dirty(session.person)
        return now + self._timings.dead_after  # from here on activity is committed when it happens

    def _refresh_life(self, session: LocalSession, committed: Session, now: int) -> int:
        due = committed.seen_at + self._timings.dead_after * 2 // 3
        if now < due:
            return due
        if session.seen_at > committed.seen_at:
            self._records.mark_dirty(session.person)
        return now + self._timings.dead_after // 6


def _margin(idle_after: int) -> int:
    return min(MARGIN, max(idle_after // 10, min(1_000, idle_after // 2)))
