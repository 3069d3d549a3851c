"""Bounded caches: a mapping that never holds more than a given number of entries.

When an entry too many is written, the entries that were written longest ago are removed. Reading an entry does not change
its place, so that a read costs as much as a read of a dictionary; `Lru.use` is the read that does.

`Lru` is a dictionary and removes a hundredth of its entries at a time. Removed one by one, each removal would step over
the places of all entries removed before it; an `OrderedDict` does not, but takes twice the memory (150 instead of 77 bytes
an entry). `ExpiringLru` is for entries that also end at a time of their own. The time is an argument, in any unit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

PORTION = 100
"""A full `Lru` removes this part of its entries: 50 000 entries lose 500 in 25 µs, once in 500 writes."""


class Lru(dict[Key, Value]):
    """Write with `put` and `put_all`: the other ways to write to a dictionary do not keep the bound."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def put(self, key: Key, value: Value) -> None:
        """The entry becomes the newest one."""
        if key in self:
            del self[key]
        self[key] = value
        if len(self) > self._size:
            self._evict()

    def put_all(self, entries: Mapping[Key, Value]) -> None:
        """As the dictionary's `update`: keys that are there keep their place."""
        self.update(entries)
        if len(self) > self._size:
            self._evict()

    def use(self, key: Key) -> Value | None:
        """Read the entry and make it the newest one."""
        value = self.get(key)
        if value is not None:
            del self[key]
            self[key] = value
        return value

    def _evict(self) -> None:
        surplus = len(self) - self._size
        for key in list(islice(self, surplus + self._size // PORTION)):
            del self[key]


class ExpiringLru(Generic[Key, Value]):
    """Each entry is there until its own time, unless it has to give way before."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        """Entries that have ended but were not removed yet are counted."""
        return len(self._entries)

    def get(self, key: Key, now: float) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None or entry[0] <= now else entry[1]

    def peek(self, key: Key) -> Value | None:
        """Without regard to the time: an entry that has ended may still be there."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: Key, value: Value, until: float) -> None:
        """The entry becomes the newest one. It is read as absent from `until` on."""
        entries = self._entries
        entries[key] = until, value
        entries.move_to_end(key)
        if len(entries) > self._size:
            entries.popitem(last=False)

    def pop(self, key: Key) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()

    def expire(self, now: float) -> None:
        """Remove the oldest entries up to the first one that has not ended. That one may keep ended entries behind it,
        but not for longer than it lasts itself."""
        entries = self._entries
        while entries:
            key = next(iter(entries))
            if entries[key][0] > now:
                return
            del entries[key]

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Oldest first, without regard to the time; call `expire` before."""
        for key, (_, value) in list(self._entries.items()):
            yield key, value
