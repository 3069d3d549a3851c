"""Delivers changes of users with very many viewers in waves: over up to ten seconds, active viewers first.

One change to fifty thousand sockets takes a third of a second, in which nothing else happens; over ten seconds it takes a
thirtieth of the node. Each viewer has a fixed delay (`core.limits`), counted from the change for this viewer, and at least
the duration of a wave between two updates. Updates of other viewers have no influence, so that the times reveal nothing
about them. The new status is read when it is sent: several changes become one, and nothing stale or forbidden waits here.

The calendar has a list per slice of time. Entries of viewers that leave early (they unsubscribe, or read) are not removed;
an entry is valid if it is the one that its wave knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from herenow.core.limits import wave_position
from herenow.node.people import Outbox, Person

SLICE = 0.05
"""Seconds."""

_EXACT = 1e-6
"""A timer may fire early by this part of a slice, by rounding."""

Recipients = list[tuple[Outbox, bytes]]
"""Outboxes to send to now, each with the encoded status that it last got."""


class PacedDelivery:
    """The waves under way. `is_active`: True if a user is active on a device. `send`: send the current status of a user to
    these outboxes."""

    def __init__(self, is_active: Callable[[str], bool], send: Callable[[Person, Recipients], None]) -> None:
        self._is_active = is_active
        self._send = send
        self.under_way: dict[Person, _Wave] = {}
        self._calendar: dict[int, list[tuple[Person, Outbox]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self.under_way)

    @property
    def waiting(self) -> int:
        return sum(len(wave.waiting) for wave in self.under_way.values())

    def add(self, person: Person, outboxes: Iterable[Outbox], had: bytes, lasts: float) -> None:
        """Schedule the user's change for these outboxes, spread over `lasts` seconds. `had`: the encoded status that
        they last got. An outbox that waits for this user already keeps its time slice and its older `had`."""
        wave = self.under_way.get(person)
        if wave is None:
            wave = self.under_way[person] = _Wave()
        slices = max(1, round(lasts / SLICE))
        now = _now()  # once: a loop over thousands takes longer than a slice, which must not delay the last ones
        for outbox in outboxes:
            if outbox not in wave.waiting:
                wave.waiting[outbox] = self._enter(person, wave, outbox, slices, now), slices, had
        self._schedule()

    def withdraw(self, person: Person, outbox: Outbox) -> bytes | None:
        """Cancel the outbox's waiting update of this user: it unsubscribes, or gets the change in another way. Returns
        the encoded status that it last got; None: no update was waiting."""
        wave = self.under_way.get(person)
        if wave is None:
            return None
        wave.not_before.pop(outbox, None)
        waits = wave.waiting.pop(outbox, None)
        return None if waits is None else waits[2]

    def hasten(self, outbox: Outbox) -> None:
        """Move all waiting updates of this outbox to earlier time slices. Call when the user of the outbox has become
        active."""
        for person, wave in self.under_way.items():
            waits = wave.waiting.get(outbox)
            if waits is None:
                continue
            at, slices, had = waits
            earlier = self._enter(person, wave, outbox, slices, _now())
            if earlier < at:
                wave.waiting[outbox] = earlier, slices, had

    def finish(self, person: Person) -> None:
        """Send this user's change now to all outboxes that still wait for it."""
        wave = self.under_way.pop(person, None)
        if wave is not None:
            self._send(person, [(outbox, had) for outbox, (_, _, had) in wave.waiting.items()])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self, person: Person, wave: _Wave, outbox: Outbox, slices: int, now: int) -> int:
        """Choose the time slice in which this outbox is sent the user's change, and enter both into the calendar.
        Returns the slice. `slices`: how many the whole delivery takes. `now`: the present slice."""
        where = wave_position(outbox.user, person.user, active=self._is_active(outbox.user))
        at = max(now + 1 + int(where * slices), wave.not_before.get(outbox, 0))
        self._calendar.setdefault(at, []).append((person, outbox))
        return at

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at((_now() + 1) * SLICE, self._roll)

    def _roll(self) -> None:
        self._timer = None
        now = _now()
        for at in sorted(at for at in self._calendar if at <= now):
            for person, recipients in self._take_due(at, now).items():
                self._send(person, recipients)
        for person, wave in list(self.under_way.items()):
            if not wave.waiting and wave.over_at <= now:
                del self.under_way[person]
        if self.under_way:
            self._schedule()

    def _take_due(self, at: int, now: int) -> dict[Person, Recipients]:
        found: dict[Person, Recipients] = {}
        for person, outbox in self._calendar.pop(at):
            wave = self.under_way.get(person)
            waits = None if wave is None else wave.waiting.get(outbox)
            if wave is None or waits is None or waits[0] != at:
                continue
            _, slices, had = wave.waiting.pop(outbox)
            wave.not_before[outbox] = now + slices
            wave.over_at = max(wave.over_at, now + slices)
            found.setdefault(person, []).append((outbox, had))
        return found


@dataclass(slots=True, eq=False, repr=False)
class _Wave:
    waiting: dict[Outbox, tuple[int, int, bytes]] = field(default_factory=dict)
    """Outbox → (slice in which it is sent to, slices that the wave takes, encoded status that it last got)."""
    not_before: dict[Outbox, int] = field(default_factory=dict)
    """Outbox → slice before which it is not sent to again."""
    over_at: int = 0
    """The latest slice in `not_before`. After it, and without waiting outboxes, the wave is dropped."""


def _now() -> int:
    return int(asyncio.get_running_loop().time() / SLICE + _EXACT)
