"""Finds sessions that are silent for `dead_after`, and commits fresh time stamps before a record would time out by old ones.

A timer wheel finds both, without a scan: a heartbeat costs nothing here. A session that seems silent is lost only after the
sockets were read once more, because a busy process reads late; if the process was suspended, only after clients were pinged
and had time to answer.
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
"""Milliseconds before a device becomes idle in the record at which its node commits newer activity, so that no reaper of
another node shows an active user as away. Less if `idle_after` is short (`_margin`)."""

SLACK = 10
"""A process that was suspended for more than a tenth of `dead_after` pinged so late that answers may be late, too. Clients
are pinged after at most 1¾ `beat_every` (`websocket.pinger`), at most ⅞ of `dead_after`: an eighth is left for delays. A
loop that is merely busy stays below."""

STILL = 3_000
"""Milliseconds without a turn of the wheel after which the process counts as suspended: the arrival time of data that it
reads then is unknown. A third of a lease, which is the precision of last seen after a node failure."""

ROUNDS = 3
"""Event loop iterations before a silent session is checked again. Each reads tens of thousands of sockets, so data that has
arrived is read by then."""

BUDGET = 200
"""Sessions lost in one event loop iteration: about 20 ms of work. Ten thousand would block the loop for seconds."""

AFTER_FAILURE = 1_000  # milliseconds until a session is checked again after an exception
TURN = 0.25  # seconds between two turns of the wheel

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
        self._wheel: Wheel[LocalSession] = Wheel(self._check)
        self._turned_at: int | None = None
        self._suspended = (0, 0)  # start and end of the last time in which this process was suspended
        self._wait_until = 0
        self._suspects: list[LocalSession] = []  # sessions that seem silent
        self._losing = False
        self._budget = LoopBudget(BUDGET)

    def turn(self) -> None:
        """Run the liveness checks that are due, and detect whether the process was suspended since the last call."""
        now = self._clock.now()
        stopped = 0 if self._turned_at is None else now - self._turned_at
        if stopped > self._timings.dead_after // SLACK + self._every:
            self._wait_until = now + min(stopped, self._timings.dead_after)
        if stopped > STILL:
            self._suspended = now - stopped, now
        self._turned_at = now
        self._wheel.turn(now)

    def arrived_by(self, read_at: int) -> int:
        """Return the earliest time (ms) at which data that was read at `read_at` can have arrived: `read_at`, or the
        start of a time in which the process was suspended."""
        if self._turned_at is not None and read_at - self._turned_at > STILL:
            return self._turned_at  # suspended until just now: `turn` has not run since
        begin, end = self._suspended
        return begin if begin < read_at <= end + self._every else read_at

    @property
    def suspicious(self) -> bool:
        """True if some sessions seem silent and `lose` is not running."""
        return bool(self._suspects) and not self._losing

    async def lose(self, on_silent: OnSilent) -> None:
        """Mark as lost the sessions that are still silent after all arrived data was read. Call in a task of its own
        when `suspicious`. `on_silent` is called with each silent session that has a socket, and the time of its loss
        (ms)."""
        self._losing = True
        try:
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            suspects, self._suspects = self._suspects, []
            for session in suspects:
                await self._budget.take()
                self._recheck_safely(session, self._clock.now(), on_silent)
        finally:
            self._losing = False

    def check_by(self, session: LocalSession, at: int) -> None:
        """Schedule a liveness check of the session at `at` (ms), unless an earlier one is scheduled. A later one stays
        in the timer wheel, and is ignored."""
        if session.check_at is None or at < session.check_at:
            session.check_at = at
            self._wheel.put(session, at)

    def fresh_until(self, session: LocalSession, committed: Session) -> int:
        """Return the time (ms) from which new activity must be committed, before the device becomes idle in the record.
        `committed`: the session in the record."""
        idle_after = idle_limit(session.person.record.presence, self._timings)
        return committed.active_at + idle_after - _margin(idle_after)

    def _check(self, session: LocalSession, now: int) -> int | None:
        if session.check_at is None or now < session.check_at:
            return None  # superseded by another entry
        if session.lost_at is not None or session not in session.person.held:
            session.check_at = None
        elif now - session.seen_at <= self._timings.dead_after:  # a beat in the last millisecond is in time
            session.check_at = self._keep_record_fresh(session, now)
        elif now < self._wait_until:
            session.check_at = self._wait_until
        else:
            session.check_at = None
            self._suspects.append(session)
        return session.check_at

    def _recheck_safely(self, session: LocalSession, now: int, on_silent: OnSilent) -> None:
        """Check a session again that seemed silent (`_recheck`), and log exceptions, so that one session cannot stop
        the checks of the others."""
        try:
            self._recheck(session, now, on_silent)
        except Exception as error:
            log.error("silence.failed", error=repr(error), exc_info=True)
            self.check_by(session, now + AFTER_FAILURE)

    def _recheck(self, session: LocalSession, now: int, on_silent: OnSilent) -> None:
        if session.lost_at is not None or session not in session.person.held:
            return
        if now - session.seen_at <= self._timings.dead_after:
            self.check_by(session, self._keep_record_fresh(session, now))
        elif now < self._wait_until:
            self.check_by(session, self._wait_until)
        elif session.unleased:  # its deadline is in the record
            session.person.held = without(session.person.held, session)
            self._people.release(session.person)
        else:
            on_silent(session, max(session.seen_at + self._timings.dead_after, self._wait_until))

    def _keep_record_fresh(self, session: LocalSession, now: int) -> int:
        """Request a commit if the record needs the newer activity or heartbeat time of this session. Returns the time
        of the next check (ms)."""
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
        return now + self._timings.dead_after  # from now on activity is committed at once

    def _refresh_life(self, session: LocalSession, committed: Session, now: int) -> int:
        due = committed.seen_at + self._timings.dead_after * 2 // 3
        if now < due:
            return due
        if session.seen_at > committed.seen_at:
            self._records.mark_dirty(session.person)
        return now + self._timings.dead_after // 6


def _margin(idle_after: int) -> int:
    return min(MARGIN, max(idle_after // 10, min(1_000, idle_after // 2)))
