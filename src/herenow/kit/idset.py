"""How are the ids of some users kept, in as little room as there is, for as long as a connection lives?

As a sorted tuple: 8 bytes for each, where a dictionary or a set of fifty takes 30 or more. Being immutable, one may serve
several who know the same people. Looking for one id takes 0.3 µs among fifty; whoever looks for many makes a set of
all for the moment, which takes as long as looking for a few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

Ids = tuple[str, ...]
"""Sorted, each once."""

NO_IDS: Ids = ()

MANY = 8
"""Ids that are looked for at a time, from which on a set of all pays."""


def holds(ids: Ids, user: str) -> bool:
    at = bisect_left(ids, user)
    return at < len(ids) and ids[at] == user


def among(ids: Ids, users: Collection[str]) -> frozenset[str]:
    """To be asked whether these users are there, and no others."""
    return frozenset(ids if len(users) >= MANY else [user for user in users if holds(ids, user)])


def having(ids: Ids, users: Collection[str]) -> Ids:
    """These as well, none of whom is there yet, and each named once."""
    if not users:
        return ids  # itself: others may have it too
    if len(users) != 1:
        return tuple(sorted([*ids, *users]))
    [user] = users
    at = bisect_left(ids, user)
    return (*ids[:at], user, *ids[at:])


def lacking(ids: Ids, users: Collection[str]) -> Ids:
    """Without these, whether they are there or not."""
    if len(users) >= MANY:
        gone = frozenset(users)
        return tuple([user for user in ids if user not in gone])
    for user in users:
        at = bisect_left(ids, user)
        if at < len(ids) and ids[at] == user:
            ids = ids[:at] + ids[at + 1 :]
    return ids
