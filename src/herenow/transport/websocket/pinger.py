"""Pings silent connections about once per period, spread evenly over it, with one timer for all.

A timer or task per connection would cost up to 2 KB and a wake-up of the loop each. Here the period is divided into slots,
new members get the slots in order, and each tick checks one slot. So the work per tick is even, a socket costs one
comparison per period, and a socket with recent signs of life is not pinged. Without members there are no ticks.

The longest time without a sign of life from a live peer: it sends something just less than `quiet` before its slot is
checked, is skipped, and is pinged one period later: period + quiet + a round trip. With quiet = ¾ period this is below
2 × `beat_every`, the least `dead_after`, and three of four clients with own heartbeats are never pinged.

This module does not close silent connections. Clock and timer are arguments, for tests.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

TICK = 0.1  # seconds; 100 000 sockets and a period of 30 s make 333 pings per tick, about 2 ms

Member = TypeVar("Member")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Pinger(Generic[Member]):
    """Pings each member that had no sign of life for `quiet` seconds (¾ `period` if not given), once per `period` seconds.

    `clock` and `last_life` return seconds of the same clock."""

    __slots__ = (
        "_call_later",
        "_clock",
        "_last_life",
        "_members",
        "_newcomers",
        "_ping",
        "_quiet",
        "_slots",
        "_started",
        "_started_at",
        "_tick",
        "_ticks_done",
        "_timer",
    )

    def __init__(
        self,
        period: float,
        *,
        last_life: Callable[[Member], float],
        ping: Callable[[Member], None],
        clock: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Timer],
        quiet: float | None = None,
        tick: float = TICK,
    ) -> None:
        slots = max(1, round(period / tick))
        self._slots: list[dict[Member, None]] = [{} for _ in range(slots)]  # a dict takes half the memory of a set
        self._tick = period / slots
        self._quiet = period * 0.75 if quiet is None else quiet
        self._last_life = last_life
        self._ping = ping
        self._clock = clock
        self._call_later = call_later
        self._newcomers = 0
        self._members = 0
        self._started = False
        self._ticks_done = 0  # ticks since the start
        self._started_at = 0.0
        self._timer: Timer | None = None

    def add(self, member: Member) -> int:
        """Add a member, such as a connection, to those that are pinged. Return its slot, which the caller must pass to
        `discard`; so no index is needed here."""
        slot = self._newcomers % len(self._slots)
        self._newcomers += 1
        self._slots[slot][member] = None
        self._members += 1
        if self._started and self._timer is None:
            self._ticks_done = max(self._ticks_done, self._due(self._clock()))  # the skipped slots were empty
            self._wait()
        return slot

    def discard(self, member: Member, slot: int) -> None:
        if member in self._slots[slot]:
            del self._slots[slot][member]
            self._members -= 1

    def start(self) -> None:
        assert not self._started
        self._started = True
        self._started_at = self._clock()
        self._ticks_done = 0
        if self._members:
            self._wait()

    def stop(self) -> None:
        self._started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        due_at = self._started_at + (self._ticks_done + 1) * self._tick
        self._timer = self._call_later(max(0.0, min(self._tick, due_at - self._clock())), self._on_tick)

    def _due(self, now: float) -> int:
        """Return how many ticks there should have been from the start until `now`."""
        return int((now - self._started_at) / self._tick + 1e-6)

    def _on_tick(self) -> None:
        now = self._clock()
        due = self._due(now)
        if due < self._ticks_done:  # the clock was set back: continue from here
            self._started_at = now - self._ticks_done * self._tick
            due = self._ticks_done
        # After a delay of the loop, check all missed slots, but none twice.
        first = max(self._ticks_done, due - len(self._slots))
        self._ticks_done = due
        self._timer = None
        if self._members:
            self._wait()  # before the pings, one of which may raise
        for tick in range(first, due):
            self._check_slot(self._slots[tick % len(self._slots)], now)

    def _check_slot(self, slot: Iterable[Member], now: float) -> None:
        for member in tuple(slot):  # a ping may end a connection
            if now - self._last_life(member) >= self._quiet:
                self._ping(member)
