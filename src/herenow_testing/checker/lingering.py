"""Repeated checks for states that must not last: ghosts, signed-out sessions, changes that viewers did not receive."""

from __future__ import annotations

from herenow.core.model import Presence, Session, public
from herenow_testing.checker.notes import Notes, seen
from herenow_testing.world.scene import Device, Shown
from herenow_testing.world.truth import Stay


class Lingering:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._views: dict[str, tuple[tuple[str, str | None], int]] = {}
        """User → (visible status and text in the record, the time at which this check first saw them)."""

    def look_around(self) -> None:
        """Check for states that must not last, such as a user who left but is shown online. Call this about every
        second."""
        for client in self._notes.scene.clients:
            link = client.link
            if link is None or client.user not in self._notes.viewers or link.silent or link.node.frozen:
                continue
            for user in self._notes.stays:
                last = self._notes.last.get((link, user))
                if last is not None and last[0].status != "offline" and not last[0].stale:
                    self._check_ghost(client, last[0])
        stored = self._notes.scene.everybody_stored()
        for user, record in stored.items():
            for session in record.sessions:
                self._check_returned(user, session)
        for user, stays in self._notes.stays.items():
            self._check_still_there(stays)
            if user not in self._notes.viewers:
                self._check_received(user, stored.get(user))

    def _check_still_there(self, stays: list[Stay]) -> None:
        now = self._notes.scene.now
        for stay in stays:
            if stay.out_at is None or stay.ended_at is not None or stay.by_rest:
                continue
            if now > stay.out_at + self._notes.late(stay.out_at, now):
                self._notes.problems.append(f"{now} returned: {stay} was signed out, and is still connected")

    def _check_received(self, user: str, record: Presence | None) -> None:
        """Check that all viewers received the status and text in a user's record; None as `record` means offline."""
        now = self._notes.scene.now
        view = seen(public(Presence() if record is None else record))
        if self._views.get(user, (None, 0))[0] != view:
            self._views[user] = view, now
        since = self._views[user][1]
        late = 2 * self._notes.bounds.late + self._notes.scene.lateness(since, now)
        if now < since + late or self._notes.troubled(now - late, now, blind=True):
            return
        for client in self._notes.scene.clients:
            last = None if client.link is None else self._notes.last.get((client.link, user))
            self._notes.counts["told"] += last is not None
            if last is not None and (last[0].status, last[0].custom) != view:
                self._notes.problem("missing", client, last[0], f"the record says {view} since {since}")

    def _check_returned(self, user: str, session: Session) -> None:
        stays = [stay for stay in self._notes.stays.get(user, ()) if stay.device == session.device]
        if not stays or stays[-1].out_at is None or stays[-1].ended_at is None:
            return
        now, out = self._notes.scene.now, max(stays[-1].out_at, stays[-1].ended_at)
        if any(t.loses and t.begin <= now <= self._notes.until(t, now) for t in self._notes.troubles):
            return  # the store may just have lost the sign-out
        if now > out + self._notes.late(out, now):
            self._notes.problems.append(f"{now} returned: {user} was signed out at {out}, the record has {session}")

    def _check_ghost(self, client: Device, shown: Shown) -> None:
        self._notes.counts["looked"] += 1
        now, stays = self._notes.scene.now, self._notes.stays[shown.user]
        if any(stay.ended_at is None and not stay.by_rest for stay in stays):
            return
        last = max(stays, key=self._notes.bounds.gone)
        ended = last.seen_at if last.by_rest else last.ended_at or 0
        self._notes.longest_ghost = max(self._notes.longest_ghost, now - ended)
        assert client.link is not None
        places = {client.link.node.name, *(each.node for each in stays if self._notes.bounds.gone(each) >= ended)}
        until = self._excused_until(self._notes.bounds.gone(last), ended, places)
        if now > until:
            self._notes.problem("ghost", client, shown, f"ended at {ended}, {last.how}; was due by {until}")

    def _excused_until(self, due: int, ended: int, places: set[str]) -> int:
        """Extend the deadline `due` (epoch ms), by which viewers must see a user offline, by the faults since `ended`.
        Faults of the nodes in `places` and of the store count until they are healed. Other nodes count only while they
        are partitioned or dead, up to `dead_node` in all, the time until others take over. A fault that begins after
        the deadline does not count."""
        now = self._notes.scene.now
        due += self._notes.scene.lateness(ended, now)
        reach, others = ended, 0
        for t in sorted(self._notes.troubles, key=lambda t: t.begin):
            until = min(now, self._notes.until(t, now))
            if t.begin > due or until <= reach or t.blinds:
                continue
            cost = until - max(t.begin, reach)
            if t.node is None or t.node in places:
                due, reach = due + cost, until
            elif t.cuts or t.kills:
                cost = min(cost, self._notes.bounds.dead_node - others)
                due, others = due + cost, others + cost
        return due
