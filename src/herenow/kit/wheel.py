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
    """`look(thing, now)` is called when a thing is due. It returns the next time (ms), or None to drop the thing."""

    __slots__ = ("_buckets", "_look", "_opened", "_width")

    def __init__(self, look: Callable[[Thing, int], int | None], width: int = 250) -> None:
        self._look = look
        self._width = width
        self._buckets: dict[int, list[Thing]] = {}
        self._opened: int | None = None
        """The newest slot that was handled."""

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def put(self, thing: Thing, at: int) -> None:
        bucket = -(-at // self._width)  # rounded up: never opened before `at`
        if self._opened is not None and bucket <= self._opened:
            bucket = self._opened + 1
        self._buckets.setdefault(bucket, []).append(thing)

    def turn(self, now: int) -> None:
        newest = now // self._width
        if self._opened is None:
            self._opened = min((newest, *self._buckets)) - 1
        due = range(self._opened + 1, newest + 1)
        buckets = due if len(due) <= len(self._buckets) else sorted(b for b in self._buckets if b in due)
        self._opened = max(newest, self._opened)
        for bucket in buckets:
            for thing in self._buckets.pop(bucket, ()):
                again = self._look(thing, now)
                if again is not None:
                    self.put(thing, again)
