"""When is a silent peer pinged? About once per period, each at its own moment, by one timer for all.

A timer or task per connection costs up to 2 KB each and wakes the loop for every one. Here the period is cut into
slots; whoever comes is put into the next slot in turn, and each tick walks one slot. So the work per tick is even,
a socket costs one comparison per period, and one that has shown life lately is not pinged at all. While nobody is here
there are no ticks.

How long can a live peer stay unheard? It speaks `quiet` - ε before its slot is walked and is left alone; it is pinged
one period later. So: period + quiet, and a round trip. With quiet = ¾ period that stays below the 2 × `beat_every`
that `dead_after` must at least be, and three of four clients that beat on their own are never pinged.

What a member is and what life means is the caller's business. The clock and the timer are arguments, so that tests
turn the wheel by hand. Closing who stays silent is not done here.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

TICK = 0.1  # seconds; 100 000 sockets and a period of 30 s make 333 pings per tick, about 2 ms

Member = TypeVar("Member")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Pinger(Generic[Member]):
    """Pings every member that was `quiet` for so long, spread evenly over `period`. Seconds, all of one clock.

    For asyncio: `clock=loop.time, call_later=loop.call_later`.
    """

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
        "_timer",
        "_walked",
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
        self._slots: list[dict[Member, None]] = [{} for _ in range(slots)]  # half of a set's size
        self._tick = period / slots
        self._quiet = period * 0.75 if quiet is None else quiet
        self._last_life = last_life
        self._ping = ping
        self._clock = clock
        self._call_later = call_later
        self._newcomers = 0
        self._members = 0
        self._started = False
        self._walked = 0  # ticks since the start
        self._started_at = 0.0
        self._timer: Timer | None = None

    def add(self, member: Member) -> int:
        """Returns the member's slot, which `discard` wants back: the caller has a place for it, we need no index."""
        slot = self._newcomers % len(self._slots)
        self._newcomers += 1
        self._slots[slot][member] = None
        self._members += 1
        if self._started and self._timer is None:
            self._walked = max(self._walked, self._due(self._clock()))  # nobody was there to be walked past
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
        self._walked = 0
        if self._members:
            self._wait()

    def stop(self) -> None:
        self._started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        due_at = self._started_at + (self._walked + 1) * self._tick
        self._timer = self._call_later(max(0.0, min(self._tick, due_at - self._clock())), self._turn)

    def _due(self, now: float) -> int:
        """Ticks since the start."""
        return int((now - self._started_at) / self._tick + 1e-6)

    def _turn(self) -> None:
        now = self._clock()
        due = self._due(now)
        if due < self._walked:  # the clock was set back: go on from here
            self._started_at = now - self._walked * self._tick
            due = self._walked
        # A loop that was busy catches up, but walks no slot twice.
        first = max(self._walked, due - len(self._slots))
        self._walked = due
        self._timer = None
        if self._members:
            self._wait()  # before the work: whatever a ping raises, the wheel goes on
        for tick in range(first, due):
            self._walk(self._slots[tick % len(self._slots)], now)

    def _walk(self, slot: Iterable[Member], now: float) -> None:
        for member in tuple(slot):  # a ping may end a connection
            if now - self._last_life(member) >= self._quiet:
                self._ping(member)
