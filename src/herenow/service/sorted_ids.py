"""How are the ids of some users kept, in as little room as there is, for as long as a connection lives?

As a sorted tuple: 8 bytes for each, where a dictionary or a set of fifty takes 30 or more. Being immutable, one may serve
several who know the same people. Looking for one id takes a quarter of a microsecond; whoever looks for many makes a set of
them for the moment (`frozenset`), which costs as much as two or three such searches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

Ids = tuple[str, ...]
"""Sorted, each once."""

NO_IDS: Ids = ()


def holds(ids: Ids, user: str) -> bool:
    at = bisect_left(ids, user)
    return at < len(ids) and ids[at] == user


def having(ids: Ids, more: Iterable[str]) -> Ids:
    """These as well, none of which is there yet, and none said twice."""
    return tuple(sorted([*ids, *more]))


def lacking(ids: Ids, user: str) -> Ids:
    at = bisect_left(ids, user)
    return (*ids[:at], *ids[at + 1 :]) if at < len(ids) and ids[at] == user else ids
