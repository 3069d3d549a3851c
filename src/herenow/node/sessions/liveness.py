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
from herenow.core.settle import Timings
from herenow.kit.clock import Clock
from herenow.kit.wheel import Wheel
from herenow.node.people import HeldSession, People, without
from herenow.node.records.authority import Standing
from herenow.node.records.decider import Decider

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

PORTION = 200
"""How many are lost in one turn of the loop, about 20 ms of work: ten thousand at once would hold it for seconds, and
every other time-out with it."""

AFTER_FAILURE = 1_000
"""Milliseconds until somebody is looked at again who could not be lost by a mistake of ours."""

log = structlog.get_logger(__name__)


class Silence:
    def __init__(
        self,
        people: People,
        decider: Decider,
        standing: Standing,
        clock: Clock,
        timings: Timings,
        every: float,
    ) -> None:
        """`every`: seconds between two turns."""
        self._people = people
        self._decider = decider
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._every = int(every * 1000)
        self._wheel: Wheel[HeldSession] = Wheel(self._look)
        self._turned_at: int | None = None
        self._still = (0, 0)
        """When this process last stood still: from, until."""
        self._patient_until = 0
        self._suspects: list[HeldSession] = []
        """Whose time has come by the wheel."""
        self._losing = False
        self.on_silent: Callable[[HeldSession, int], None] = _nothing
        """Called with a leased session and the time at which it is lost."""

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

    async def lose(self) -> None:
        """Who seems silent, and is so after everything was read that has arrived. Whenever it is `suspicious`, but not by
        the one who turns the wheel: it takes as long as it takes."""
        self._losing = True
        try:
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            suspects, self._suspects = self._suspects, []
            for start in range(0, len(suspects), PORTION):
                now = self._clock.now()
                for session in suspects[start : start + PORTION]:
                    self._look_for_sure(session, now)
                await asyncio.sleep(0)
        finally:
            self._losing = False

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
            self._suspects.append(session)
        return session.look_at

    def _look_for_sure(self, session: HeldSession, now: int) -> None:
        """What goes wrong with one is no reason to take the others for alive."""
        try:
            self._look_closely(session, now)
        except Exception as error:
            log.error("silence.failed", error=repr(error), exc_info=True)
            self.look_by(session, now + AFTER_FAILURE)

    def _look_closely(self, session: HeldSession, now: int) -> None:
        if session.lost_at is not None or session not in session.person.sessions:
            return
        if now - session.seen_at <= self._timings.dead_after:
            self.look_by(session, self._keep_record_fresh(session, now))
        elif now < self._patient_until:
            self.look_by(session, self._patient_until)
        else:
            self._silent(session)

    def _silent(self, session: HeldSession) -> None:
        if session.unleased:  # the record has its deadline and loses it by itself
            session.person.sessions = without(session.person.sessions, session)
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
