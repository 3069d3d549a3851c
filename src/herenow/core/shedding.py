"""What may wait while a node is overloaded, in the order it is given up: typing, then online ↔ away, then custom text.

Answers: how late is too late for what, and which differences are of that kind? Coming and going is never given up, nor
is busy, nor who may see whom. What waited is sent when the node has caught up: the latest value, once.
Does not know how lateness is measured, nor where things wait.
"""

from __future__ import annotations

from enum import IntEnum

from herenow.core.model import Status, View
from herenow.core.values import replace


class Shed(IntEnum):
    """Each level gives up what those before it do, and more."""

    NOTHING = 0
    TYPING = 1
    IDLENESS = 2
    TEXT = 3


BEGIN = {Shed.TYPING: 0.2, Shed.IDLENESS: 0.5, Shed.TEXT: 1.0}
"""Seconds that the event loop is late from which on a level holds. It is left at half of them."""

_IDLENESS = frozenset((Status.ONLINE, Status.AWAY))


def level(present: Shed, late: float) -> Shed:
    """The level for a loop that is `late` seconds behind, coming from `present`."""
    for shed in reversed(BEGIN):
        bound = BEGIN[shed] if shed > present else BEGIN[shed] / 2
        if late >= bound:
            return shed
    return Shed.NOTHING


def may_wait(before: View, after: View, shed: Shed) -> bool:
    """Is the difference between what a viewer has and what is true now one that this level gives up?"""
    if shed < Shed.IDLENESS:
        return False
    if before.status is not after.status:
        if not {before.status, after.status} <= _IDLENESS:
            return False
        return shed >= Shed.TEXT or _told_alike(before, after)
    return shed >= Shed.TEXT and before != after and before.status is not Status.OFFLINE


def _told_alike(before: View, after: View) -> bool:
    """They differ in nothing but idleness, and what follows from it."""
    return replace(before, status=after.status, since=after.since) == after
