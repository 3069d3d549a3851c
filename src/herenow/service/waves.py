"""A popular person's change goes out in waves: over up to ten seconds, to those who are active first.

Answers: a change has more viewers here than should be told at once; who is next, and what did they have before?
Does not know how they are told, nor what they are shown.

One change to fifty thousand sockets is a second of nothing else. Spread over ten seconds it is a tenth of the node, and
whoever looks at the screen hears of it first. A viewer waits at most once: if the person changes again meanwhile, those
who wait keep their place among those as active as they are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from herenow.service.outbox import Outbox

if TYPE_CHECKING:
    from herenow.service.hub import Channel

SLICE = 0.05
"""Seconds between two parts of a wave."""

LONGEST = 10.0
"""Seconds a wave takes at most."""

Told = list[tuple[Outbox, bytes]]
"""Who is told now, and what they had."""


def duration(viewers: int, pace_above: int) -> float:
    """Seconds: `pace_above` viewers are told per second, until that would take too long."""
    return min(LONGEST, viewers / max(1, pace_above))


class Waves:
    def __init__(
        self, pace_above: int, is_active: Callable[[Outbox], bool], tell: Callable[[Channel, Told], None]
    ) -> None:
        self._pace_above = pace_above
        self._is_active = is_active
        self._tell = tell
        self._waves: dict[Channel, _Wave] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, channel: Channel) -> bool:
        return channel in self._waves

    def begin(self, channel: Channel, had: bytes) -> None:
        """It changed: everybody had this, except those who have not heard of an earlier change and had something older."""
        wave = self._waves.get(channel)
        if wave is None:
            wave = self._waves[channel] = _Wave()
        for outbox in channel.outboxes:
            wave.waiting.setdefault(outbox, outbox.dirty.pop(channel, had))

    def roll(self, channel: Channel, *, held: bool) -> None:
        """Those who wait are told from now on; `held`: not before somebody says so."""
        wave = self._waves[channel]
        wave.held = held
        if held:
            return
        wave.waiting = {outbox: wave.waiting[outbox] for outbox in self._active_first(wave.waiting)}
        slices = max(1, round(duration(len(wave.waiting), self._pace_above) / SLICE))
        wave.part = math.ceil(len(wave.waiting) / slices)
        self._schedule()

    def withdraw(self, channel: Channel, outbox: Outbox) -> bytes | None:
        """It leaves, or hears of it in another way. Answers what it had if it was waiting."""
        wave = self._waves.get(channel)
        if wave is None:
            return None
        had = wave.waiting.pop(outbox, None)
        if not wave.waiting:
            del self._waves[channel]
        return had

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _active_first(self, outboxes: Iterable[Outbox]) -> list[Outbox]:
        return sorted(outboxes, key=lambda outbox: not self._is_active(outbox))

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SLICE, self._roll)

    def _roll(self) -> None:
        self._timer = None
        rolling = [(channel, wave) for channel, wave in self._waves.items() if not wave.held]
        for channel, wave in rolling:
            told = list(islice(wave.waiting.items(), wave.part))
            for outbox, _ in told:
                del wave.waiting[outbox]
            if not wave.waiting:
                del self._waves[channel]
            self._tell(channel, told)
        if rolling:
            self._schedule()


class _Wave:
    __slots__ = ("held", "part", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Outbox, bytes] = {}
        """In their turn, with what they had."""
        self.held = False
        self.part = 0
        """How many are told at a time."""
