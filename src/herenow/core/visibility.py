"""Who may see what of whom: ordered rules over facts, the first that applies decides.

Answers: given the facts about (viewer, target), what kind of view does the viewer get, and by which rule?
Does not know where facts come from, nor what a view looks like on the wire.
Adding a rule is one function, its place in `RULES`, and its rows in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from herenow.core.model import NOBODY_HERE, Presence, View, public, truth


class Sight(Enum):
    """The kinds of view. Viewers with the same sight of a target see the same bytes."""

    TRUTH = "truth"
    """Also what is hidden from others: the user's own devices, the operator's services."""
    FULL = "full"
    """What the target shows; a hidden target shows that it signed out when it hid."""
    NONE = "none"
    """As for somebody who was never here."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a viewer and a target. All false: two strangers."""

    same_user: bool = False
    service: bool = False
    related: bool = False
    """They follow each other, or have an open conversation."""


@dataclass(frozen=True, slots=True)
class Verdict:
    sight: Sight
    rule: str


Rule = Callable[[Facts], Sight | None]


def _self(facts: Facts) -> Sight | None:
    return Sight.TRUTH if facts.same_user else None


def _service(facts: Facts) -> Sight | None:
    return Sight.TRUTH if facts.service else None


def _not_related(facts: Facts) -> Sight | None:
    return None if facts.related else Sight.NONE


def _contacts(facts: Facts) -> Sight | None:
    return Sight.FULL


RULES: tuple[tuple[str, Rule], ...] = (
    ("self", _self),
    ("service", _service),
    ("not_related", _not_related),
    ("contacts", _contacts),
)


def judge(facts: Facts) -> Verdict:
    for name, rule in RULES:
        sight = rule(facts)
        if sight is not None:
            return Verdict(sight, name)
    raise AssertionError("the last rule decides always")


def seen(presence: Presence, sight: Sight) -> View:
    """The one projection: every exit shows a presence through this."""
    if sight is Sight.TRUTH:
        return truth(presence)
    if sight is Sight.FULL:
        return public(presence)
    return NOBODY_HERE


def may_hear_typing(presence: Presence, sight: Sight) -> bool:
    """Typing says "online" as loudly as a status does: the hidden type for nobody."""
    return sight is Sight.FULL and not presence.hidden
