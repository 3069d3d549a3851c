"""A compact set of ids, for sets that are kept long: a sorted tuple.

It takes 8 bytes an id; a set or dictionary of fifty takes 30 or more. It is immutable, so several owners may share one.
Finding one id among fifty takes 0.3 µs; finding many (`among`) builds a temporary set, which takes as long as a few
searches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

Ids = tuple[str, ...]
"""Sorted, each once."""

NO_IDS: Ids = ()

MANY = 8
"""Number of wanted ids from which on a temporary set is faster."""


def holds(ids: Ids, wanted: str) -> bool:
    at = bisect_left(ids, wanted)
    return at < len(ids) and ids[at] == wanted


def among(ids: Ids, wanted: Collection[str]) -> frozenset[str]:
    """Return a set that contains every one of `wanted` that is in `ids`, and none that is not. It may contain further
    members of `ids`."""
    return frozenset(ids if len(wanted) >= MANY else [each for each in wanted if holds(ids, each)])


def having(ids: Ids, others: Collection[str]) -> Ids:
    """Return `ids` with `others` added. None of these may be in `ids` already, or be named twice."""
    if not others:
        return ids  # the same object, which may be shared
    if len(others) != 1:
        return tuple(sorted([*ids, *others]))
    [each] = others
    at = bisect_left(ids, each)
    return (*ids[:at], each, *ids[at:])


def lacking(ids: Ids, others: Collection[str]) -> Ids:
    """Return `ids` without `others`, of which some may not be in `ids`."""
    if len(others) >= MANY:
        gone = frozenset(others)
        return tuple([each for each in ids if each not in gone])
    for each in others:
        at = bisect_left(ids, each)
        if at < len(ids) and ids[at] == each:
            ids = ids[:at] + ids[at + 1 :]
    return ids
