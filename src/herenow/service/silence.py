"""Who has fallen silent, and whose record must hear of life before it takes somebody for idle or dead?

Both are found by a wheel, not by a scan: a beat costs nothing here. Another reason to look at a held session after a
while is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Callable

from herenow.core.machine import Timings
from herenow.core.model import Idle, Session
from herenow.core.sessions import idle_limit
from herenow.service.clock import Clock
from herenow.service.decide import Decider
from herenow.service.people import HeldSession, People
from herenow.service.standing import Standing
from herenow.service.wheel import Wheel

MARGIN = 5_000
"""Milliseconds before a device falls idle in the record at which its holder commits fresher activity, so that no other
node's reaper shows somebody away who is not. A tenth of `idle_after` where that is less, but not less than it takes to
turn the wheel."""

STOPPED = 2_000
"""Milliseconds between two turns of the wheel from which we take it that this process stood still: signs of life may wait
in our sockets, so that nobody is silent yet."""


class Silence:
    def __init__(
        self, people: People, decider: Decider, standing: Standing, clock: Clock, timings: Timings
    ) -> None:
        self._people = people
        self._decider = decider
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._wheel: Wheel[HeldSession] = Wheel(self._look)
        self._turned_at: int | None = None
        self._patient_until = 0
        self.on_silent: Callable[[HeldSession, int], None] = _nothing
        """Called with a leased session and the time at which it is lost."""

    def turn(self) -> None:
        """Look at those whose time has come; a few times a second."""
        now = self._clock.now()
        stopped = 0 if self._turned_at is None else now - self._turned_at
        if stopped >= STOPPED:
            self._patient_until = now + min(stopped, self._timings.dead_after)
        self._turned_at = now
        self._wheel.turn(now)

    def look_by(self, session: HeldSession, at: int) -> None:
        """Not later than this; an entry in the wheel that comes later is skipped then."""
        if session.look_at is None or at < session.look_at:
            session.look_at = at
            self._wheel.put(session, at)

    def fresh_until(self, session: HeldSession, committed: Session) -> int:
        """From then on activity is news to a record in which the device is not idle."""
        idle_after = idle_limit(session.person.presence, self._timings)
        return committed.active_at + idle_after - _margin(idle_after)

    def _look(self, session: HeldSession, now: int) -> int | None:
        if session.look_at is None or now < session.look_at:
            return None  # another entry counts
        if session.lost_at is not None or session not in session.person.sessions:
            session.look_at = None
        elif now - session.seen_at <= self._timings.dead_after:  # a beat in the last millisecond counts
            session.look_at = self._keep_record_fresh(session, now)
        elif now < self._patient_until:
            session.look_at = self._patient_until
        else:
            session.look_at = None
            self._silent(session)
        return session.look_at

    def _silent(self, session: HeldSession) -> None:
        if session.unleased:  # the record has its deadline and loses it by itself
            session.person.sessions.remove(session)
            self._people.release(session.person, self._clock.now())
            return
        self.on_silent(session, max(session.seen_at + self._timings.dead_after, self._patient_until))

    def _keep_record_fresh(self, session: HeldSession, now: int) -> int:
        """Fresher stamps reach the record before it would fall due by its own. Answers when to look again."""
        again = session.seen_at + self._timings.dead_after + 1
        committed = session.in_record(self._standing.epoch)
        if committed is None:
            return min(again, now + 1_000)
        if committed.idle is Idle.NO:
            again = min(again, self._refresh_activity(session, committed, now))
        if session.unleased:
            again = min(again, self._refresh_life(session, committed, now))
        return again

    def _refresh_activity(self, session: HeldSession, committed: Session, now: int) -> int:
        due = self.fresh_until(session, committed)
        if now < due:
            return due
        if session.active_at > committed.active_at:
            self._decider.touch(session.person)
        return now + self._timings.dead_after  # from here on activity is committed when it happens

    def _refresh_life(self, session: HeldSession, committed: Session, now: int) -> int:
        due = committed.seen_at + self._timings.dead_after * 2 // 3
        if now < due:
            return due
        if session.seen_at > committed.seen_at:
            self._decider.touch(session.person)
        return now + self._timings.dead_after // 6


def _margin(idle_after: int) -> int:
    return min(MARGIN, max(idle_after // 10, min(1_000, idle_after // 2)))


def _nothing(session: HeldSession, lost_at: int) -> None:
    pass
