"""The allowed range of a user's last seen, computed from what the user did. Each exception has its reason here."""

from __future__ import annotations

from herenow.core.model import Mode
from herenow_testing.checker.notes import Notes
from herenow_testing.world.scene import Device
from herenow_testing.world.truth import Stay


class LastSeen:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def between(self, user: str, *, to: Device | None = None) -> tuple[int, int]:
        """Return the earliest and latest allowed last seen (epoch ms) of an offline user. Sessions in which the user
        may have been invisible do not count for the earliest. `to`: nor do sessions that this viewer need not know of
        yet."""
        modes, ended = (
            self._notes.modes[user],
            [s for s in self._notes.stays[user] if s.by_rest or s.ended_at is not None],
        )
        public = [
            stay
            for stay in ended
            if stay.greeted_at is not None
            and (to is None or self._notes.is_known(stay, to))
            and not self._goes_on(stay)
            and not modes.may_have_been(Mode.INVISIBLE, self._first(stay), self._notes.bounds.gone(stay))
        ]
        first = max(map(self._first, public), default=0)
        last = max(map(self._last, self._notes.stays[user]), default=0)
        if any(mode is Mode.INVISIBLE for _, mode in modes.ever):
            # Setting and ending the mode invisible count as activity, at the time they are confirmed.
            answered = len(modes.ever) - 1 in modes.done
            done = max(modes.done.values(), default=0) if answered else self._notes.scene.now
            last = max(last, done) + self._notes.bounds.late
        return first, last

    def _goes_on(self, stay: Stay) -> bool:
        """True if the session continued after this socket ended. A session is one device on one node with any number of
        tabs, and a half-open socket counts as a tab: a device that returns to the node before the socket times out
        continues the session. The node writes nothing when a tab closes, and the later tab determines the last seen."""
        return any(
            (later.device, later.node) == (stay.device, stay.node)
            and later.beside_half_open
            and later.greeted_at is not None
            and later.opened_at >= (stay.ended_at or 0)
            for later in self._notes.stays[stay.user]
            if later is not stay and not stay.by_rest and (stay.how == "vanished" or stay.beside_half_open)
        )

    def _first(self, stay: Stay) -> int:
        """The earliest last seen (epoch ms) that one session allows. If its node was in trouble when the session ended,
        the end may not be written yet (or never, if the node dies); then an earlier written time is allowed."""
        usual, end, now = self._notes.bounds.seen(stay), stay.ended_at or stay.seen_at, self._notes.scene.now
        if stay.signed_at is not None:  # activity after the sign-out request does not count
            usual = min(usual, stay.signed_at - self._notes.bounds.late)
        usual -= self._notes.scene.lateness(usual, end + self._notes.bounds.late)
        first, died = usual, self._died_with(stay)
        unsaid = stay.signed_out or self._chose_since(stay)
        for t in self._notes.troubles:
            concerned = (t.node in (stay.node, None) or stay.by_rest) and not t.blinds
            lasts = died or t.shifts or t.stops or (t.cuts and unsaid) or now <= self._notes.until(t, now)
            if concerned and lasts and t.begin <= end + self._notes.bounds.late and self._notes.until(t, now) >= usual:
                first = min(first, t.begin - self._notes.bounds.lease // 3 - self._notes.bounds.late)
        return first

    def _chose_since(self, stay: Stay) -> bool:
        """True if the user set a mode or custom status after the session ended. A node that was treated as dead cannot
        know whether the user hid meanwhile, so it does not report the last seen it knows."""
        end = stay.ended_at or stay.seen_at
        asked = [*self._notes.modes[stay.user].ever, *self._notes.texts[stay.user].ever]
        return any(at + self._notes.bounds.late >= end for at, _ in asked)

    def _died_with(self, stay: Stay) -> bool:
        """True if the node of this session was killed before it can have written the end of the session."""
        end = stay.ended_at or stay.seen_at
        noticed = end + self._notes.bounds.late
        if stay.how == "vanished" or stay.beside_half_open:
            noticed += self._notes.bounds.timings.dead_after
        return any(
            t.kills
            and t.node == stay.node
            and end - self._notes.bounds.late <= t.begin <= noticed + self._notes.troubled(end, t.begin)
            for t in self._notes.troubles
        )

    def _last(self, stay: Stay) -> int:
        """The latest last seen (epoch ms) that one session allows: its end, or the end of a fault that kept its node
        from noticing the end of the session."""
        now = self._notes.scene.now
        if stay.ended_at is None and not stay.by_rest:
            return now + self._notes.bounds.late
        end = max(stay.ended_at or stay.seen_at, stay.seen_at)
        last = end + self._notes.bounds.late
        if stay.signed_at is not None:
            last = max(last, stay.signed_at + self._notes.bounds.healed)
        for t in self._notes.troubles:
            if (
                t.node in (stay.node, None)
                and t.begin <= self._notes.bounds.gone(stay)
                and self._notes.until(t, now) >= end
            ):
                last = max(last, (t.end or now) + self._notes.bounds.late)
        return last + self._notes.scene.lateness(end, min(now, last))
