"""Sessions by REST heartbeats, sent by a device without a socket or by an outside gateway for it.

Such a session belongs to no node: its deadline is in the record, and any node may receive the next heartbeat. If the device
also has a socket on some node, a heartbeat is only a sign of life for the session of that socket.
"""

from __future__ import annotations

import asyncio

from herenow.core.edits import act, act_on, lived, lose
from herenow.core.model import UNLEASED, Idle, Platform, Session
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.node.context import Context
from herenow.node.people import LocalSession, Person, without
from herenow.node.records import Records
from herenow.node.sessions.connections import Connections
from herenow.node.sessions.liveness import LivenessMonitor
from herenow.settings import milliseconds
from herenow.wire.inputs import Activity

TOGETHER = 200  # users handed over at a time


class RestBeats:
    def __init__(self, context: Context, records: Records, connections: Connections, liveness: LivenessMonitor) -> None:
        self._people = context.people
        self._authority = context.authority
        self._clock = context.clock
        self._timings = context.timings
        self._beat_min = milliseconds(context.settings.beat_min)
        self._records = records
        self._connections = connections
        self._liveness = liveness

    async def beat(
        self, user: str, device: str, platform: Platform, activity: Activity | None, *, issued_at: int | None = None
    ) -> bool:
        """Record a REST heartbeat, which creates or extends a REST session; if the device has a socket, it counts for
        the session of the socket. `issued_at`: when the user's token was issued (ms); None: a service calls. Returns
        False if it came sooner than `beat_min` after the last one. While the store is unreachable the heartbeat is
        kept, and committed later. Raises `ProtocolError` (too_many_sessions, token_revoked)."""
        person = self._people.get(user)
        with self._people.keeping(person):
            issued = self._clock.now() if issued_at is None else issued_at
            return await self._beat(person, device, platform, activity, issued)

    async def _beat(
        self, person: Person, device: str, platform: Platform, activity: Activity | None, issued_at: int
    ) -> bool:
        held = person.session(device)
        if held is not None:
            return self._connections.beat(held, activity)
        session = person.session(device, unleased=True)
        if session is None:
            session = self._hold_unleased(person, device, platform)
        session.issued_at = max(session.issued_at, issued_at)
        counts = self._connections.beat(session, activity)
        committed = session.in_record(UNLEASED)
        if committed is None or not committed.live or self._is_due_again(session, committed):
            self._records.mark_dirty(person)
        try:
            await self._wait_committed(person, session)
        except (Unavailable, UnknownOutcome):
            return counts  # the session is held, and is committed after the outage
        if session.ended_by_deletion:
            raise ProtocolError("token_revoked", "The token was issued before the user was deleted.")
        if session.asserted == 0 and session not in person.held:
            raise ProtocolError(
                "too_many_sessions", f"This user has {self._timings.max_sessions} sessions, which is the most allowed."
            )
        if session.in_record(UNLEASED) is None:
            await self._beat_elsewhere(session, activity)
        return counts

    async def _wait_committed(self, person: Person, session: LocalSession) -> None:
        if person.record.dirty:
            await self._records.wait_decided(person.user)
        if session.in_record(UNLEASED) is None and session in person.held:
            # By the known record another node has a socket of the device: check with a fresh one.
            await self._records.wait_decided(person.user, afresh=True)

    def _hold_unleased(self, person: Person, device: str, platform: Platform) -> LocalSession:
        now = self._clock.now()
        session = LocalSession(person, device, platform, since=now, seen_at=now, unleased=True)
        person.held += (session,)
        self._liveness.check_by(session, session.seen_at + self._timings.dead_after * 2 // 3)
        return session

    def _is_due_again(self, session: LocalSession, committed: Session) -> bool:
        """True if the last heartbeat should be committed, to move the deadline in the record: at most every third of
        `dead_after`."""
        return session.seen_at - committed.seen_at >= self._timings.dead_after // 3

    async def _beat_elsewhere(self, session: LocalSession, activity: Activity | None) -> None:
        """Commit the activity to the session of the device's socket on another node. The REST session is removed: kept,
        it could revive the device later."""
        person = session.person
        if session in person.held:
            person.held = without(person.held, session)
        there = [s for s in person.record.presence.sessions if s.live and s.device == session.device]
        if activity is Activity.IDLE and any(s.idle is not Idle.SAID for s in there):
            await self._records.apply(person.user, act_on(session.device, idle=True))
        elif activity is Activity.ACTIVE and any(self._is_news(s, session.seen_at) for s in there):
            await self._records.apply(person.user, act_on(session.device, idle=False))

    def _is_news(self, committed: Session, acted_at: int) -> bool:
        return committed.idle is not Idle.NO or acted_at - committed.active_at >= self._beat_min

    async def acted(self, user: str) -> bool:
        """Record activity of the user on an unknown device: it counts for all live sessions. Returns True if there are
        any."""
        person = self._people.get(user)
        with self._people.keeping(person):
            presence = person.record.presence if person.record.known else await self._records.wait_decided(user)
            now = self._clock.now()
            held = [session for session in person.held if session.lost_at is None]
            for session in held:
                self._connections.note_activity(session, Activity.ACTIVE, now)
            here = {(s.device, UNLEASED if s.unleased else self._authority.epoch) for s in held}
            if any(s.live and (s.device, s.holder) not in here for s in presence.sessions):
                presence = await self._records.apply(user, act())
            elif person.record.dirty:
                presence = await self._records.wait_decided(user)
            return presence.live

    async def gone(self, user: str, device: str) -> None:
        """Move the device's REST session into grace, because the outside gateway lost the device."""
        self._connections.drop_held(user, device, unleased=True)
        await self._records.apply(user, lose(device))

    async def hand_over(self) -> None:
        """Commit the REST heartbeats that are later than those in the records, earliest deadline first. Call before the
        node stops. If one fails, the device's next heartbeat, at another node, extends the session."""
        known = [(_known_until(person), person) for person in self._people if _news(person)]
        known.sort(key=lambda each: each[0])
        for start in range(0, len(known), TOGETHER):
            part = [person for _, person in known[start : start + TOGETHER]]
            await asyncio.gather(
                *(self._records.apply(person.user, lived(_news(person))) for person in part), return_exceptions=True
            )


def _news(person: Person) -> dict[str, int]:
    """Return the user's REST heartbeats (device → time in ms) that are later than those in the record."""
    recorded = {s.device: s.seen_at for s in person.record.presence.sessions if s.holder == UNLEASED and s.live}
    return {
        session.device: session.seen_at
        for session in person.held
        if session.unleased and session.seen_at > recorded.get(session.device, session.seen_at)
    }


def _known_until(person: Person) -> int:
    return min(s.seen_at for s in person.record.presence.sessions if s.holder == UNLEASED and s.live)
