"""Bounded caches: mappings that evict the oldest-written entries beyond a given size.

Reading an entry does not make it newer, so that a read is as cheap as one of a dictionary; `Lru.use` is the read that does.

`Lru` is a dictionary and evicts a hundredth of its entries at a time: evicting one by one would skip over the places of all
entries evicted before. An `OrderedDict` has no such cost, but takes twice the memory (150 instead of 77 bytes an entry).
`ExpiringLru` is for entries with an expiry time. The time is an argument, in any unit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

PORTION = 100
"""A full `Lru` evicts 1/PORTION of its entries: 50 000 entries lose 500 in 25 µs, once in 500 writes."""


class Lru(dict[Key, Value]):
    """Write with `put` and `put_all` only: other ways of writing to a dictionary do not keep the bound."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def put(self, key: Key, value: Value) -> None:
        """Store an entry as the newest one. Evicts the oldest entries if there are too many."""
        if key in self:
            del self[key]
        self[key] = value
        if len(self) > self._size:
            self._evict()

    def put_all(self, entries: Mapping[Key, Value]) -> None:
        """Store several entries. Keys that exist already keep their age, as with `dict.update`."""
        self.update(entries)
        if len(self) > self._size:
            self._evict()

    def use(self, key: Key) -> Value | None:
        """Return the value of a key and make its entry the newest; None if there is no entry."""
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
    """Entries expire at their own times; the oldest is evicted earlier if there are too many."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries, including expired ones that were not removed yet."""
        return len(self._entries)

    def get(self, key: Key, now: float) -> Value | None:
        entry = self._entries.get(key)
        return None if entry is None or entry[0] <= now else entry[1]

    def peek(self, key: Key) -> Value | None:
        """Return the value of a key even if it has expired; None if there is no entry."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: Key, value: Value, until: float) -> None:
        """Store an entry that expires at `until`, as the newest one. Evicts the oldest if there are too many."""
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
        """Remove expired entries, oldest-written first. Stops at the first valid one; expired ones written after it
        remain."""
        entries = self._entries
        while entries:
            key = next(iter(entries))
            if entries[key][0] > now:
                return
            del entries[key]

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Iterate over all entries, oldest-written first, including expired ones that were not removed yet."""
        for key, (_, value) in list(self._entries.items()):
            yield key, value
