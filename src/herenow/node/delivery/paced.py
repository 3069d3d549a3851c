"""A popular person's changes go out in waves: over up to ten seconds, to those who are active first.

Answers: who of the many viewers has not heard of a change yet, what did they have before, and whose turn is it now?
Does not know how they are told, nor what they are shown: that is looked up when their turn has come, so nothing stale or
forbidden waits here.

One change to fifty thousand sockets is a third of a second of nothing else. Spread over ten seconds it is a thirtieth of
the node. A viewer's turn comes so long after something changed for them as their place says (`core.limits`), and once
they were told, not again before as much time has passed as a wave takes. Both count from what that viewer heard, not from
what others did: a wave for others, in which this viewer has no part, leaves no trace. Who changes again while viewers
wait is told to them once, as of their turn.

The calendar holds a list for each twentieth of a second. Whoever leaves it early (who unsubscribes, or asks) is not
searched for there; an entry counts if it is the one its wave knows of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from herenow.core.limits import wave_position
from herenow.node.people import Outbox, Person

SLICE = 0.05
"""Seconds between two parts of a wave."""

_EXACT = 1e-6
"""A timer may fire this part of a slice early by rounding."""

Told = list[tuple[Outbox, bytes]]
"""Who is told now, and what they had."""


class PacedDelivery:
    def __init__(self, is_active: Callable[[str], bool], tell: Callable[[Person, Told], None]) -> None:
        """`is_active(user)`: somebody looks at one of their screens."""
        self._is_active = is_active
        self._tell = tell
        self.under_way: dict[Person, _Wave] = {}
        self._calendar: dict[int, list[tuple[Person, Outbox]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self.under_way)

    @property
    def waiting(self) -> int:
        """How many have not heard of something yet."""
        return sum(len(wave.waiting) for wave in self.under_way.values())

    def add(self, person: Person, outboxes: Iterable[Outbox], had: bytes, lasts: float) -> None:
        """Something changed for these, who had this before; who waits already had something older, and keeps its turn."""
        wave = self.under_way.get(person)
        if wave is None:
            wave = self.under_way[person] = _Wave()
        slices = max(1, round(lasts / SLICE))
        now = (
            _now()
        )  # once: to go through thousands takes longer than a slice, and the last are not to come later for it
        for outbox in outboxes:
            if outbox not in wave.waiting:
                wave.waiting[outbox] = self._turn(person, wave, outbox, slices, now), slices, had
        self._schedule()

    def withdraw(self, person: Person, outbox: Outbox) -> bytes | None:
        """It looks away, or hears of it in another way. Answers what it had, if it was waiting."""
        wave = self.under_way.get(person)
        if wave is None:
            return None
        wave.rests.pop(outbox, None)
        waits = wave.waiting.pop(outbox, None)
        return None if waits is None else waits[2]

    def hasten(self, outbox: Outbox) -> None:
        """Its user is active now: the turn of those who are comes first."""
        for person, wave in self.under_way.items():
            waits = wave.waiting.get(outbox)
            if waits is None:
                continue
            turn, slices, had = waits
            sooner = self._turn(person, wave, outbox, slices, _now())
            if sooner < turn:
                wave.waiting[outbox] = sooner, slices, had

    def finish(self, person: Person) -> None:
        """Whoever still waits is told now."""
        wave = self.under_way.pop(person, None)
        if wave is not None:
            self._tell(person, [(outbox, had) for outbox, (_, _, had) in wave.waiting.items()])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # How

    def _turn(self, person: Person, wave: _Wave, outbox: Outbox, slices: int, now: int) -> int:
        """The slice in which it is told, entered into the calendar."""
        where = wave_position(outbox.user, person.user, active=self._is_active(outbox.user))
        turn = max(now + 1 + int(where * slices), wave.rests.get(outbox, 0))
        self._calendar.setdefault(turn, []).append((person, outbox))
        return turn

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at((_now() + 1) * SLICE, self._roll)

    def _roll(self) -> None:
        self._timer = None
        now = _now()
        for turn in sorted(turn for turn in self._calendar if turn <= now):
            for person, told in self._whose_turn(turn, now).items():
                self._tell(person, told)
        for person, wave in list(self.under_way.items()):
            if not wave.waiting and wave.rests_until <= now:
                del self.under_way[person]
        if self.under_way:
            self._schedule()

    def _whose_turn(self, turn: int, now: int) -> dict[Person, Told]:
        found: dict[Person, Told] = {}
        for person, outbox in self._calendar.pop(turn):
            wave = self.under_way.get(person)
            waits = None if wave is None else wave.waiting.get(outbox)
            if wave is None or waits is None or waits[0] != turn:
                continue
            _, slices, had = wave.waiting.pop(outbox)
            wave.rests[outbox] = now + slices
            wave.rests_until = max(wave.rests_until, now + slices)
            found.setdefault(person, []).append((outbox, had))
        return found


@dataclass(slots=True, eq=False, repr=False)
class _Wave:
    """What is under way about one person."""

    waiting: dict[Outbox, tuple[int, int, bytes]] = field(default_factory=dict)
    """For which slice, how many slices the wave takes, and what they had."""
    rests: dict[Outbox, int] = field(default_factory=dict)
    """Until which slice those who were told are not told again."""
    rests_until: int = 0
    """The latest of these; then there is nothing left to know."""


def _now() -> int:
    """The slice we are in."""
    return int(asyncio.get_running_loop().time() / SLICE + _EXACT)
