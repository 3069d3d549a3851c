"""What does somebody do, before and after they hide? Steps of one person's day, and how to make days up.

A step is a value, so that a history can be printed, kept and played again. Which steps are possible at a moment is not
known here: acting on a device that is not there is nothing, in both worlds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

DEVICES = ("d1", "d2")
PLATFORMS = {"d1": "mobile", "d2": "desktop"}
PAUSES = (1, 9, 11, 20, 39, 41, 61, 120)
"""Seconds, on both sides of `grace` (10), `dead_after` (40) and `idle_after` (60)."""


@dataclass(frozen=True, slots=True)
class Connect:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Act:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Rest:
    """Say that this device is idle."""

    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Drop:
    """The socket closes; `vanish`: without a word."""

    device: str = "d1"
    vanish: bool = False


@dataclass(frozen=True, slots=True)
class SignOut:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Choose:
    """A mode, with an end in so many seconds. After the hiding, one in which it goes on."""

    mode: str = "busy"
    ends_in: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A custom status, with an end in so many seconds; None: cleared."""

    text: str | None = "here"
    ends_in: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """To the friend, or in the room."""

    room: bool = False
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Beat:
    """By REST, from a device without a socket."""

    activity: str | None = None


Step: TypeAlias = Connect | Act | Rest | Drop | SignOut | Choose | Write | Type | Beat


@dataclass(frozen=True, slots=True)
class History:
    """(step, seconds that pass after it) of each."""

    shared: tuple[tuple[Step, int], ...] = ()
    """What both twins do."""
    hidden: tuple[tuple[Step, int], ...] = field(default=())
    """What one of them goes on doing after it hid, while the other is gone."""


TOUR = History(
    shared=(
        (Connect("d1"), 1),
        (Connect("d2"), 1),
        (Write("here", 30), 1),
        (Type(), 3),
        (Type(room=True), 3),
        (Choose("busy"), 1),
        (Choose("auto"), 5),
    ),
    hidden=(
        (Act("d1"), 5),
        (Type(), 3),
        (Type(room=True), 3),
        (Write("secret", 9), 11),
        (Choose("invisible", 3_000), 2),
        (Rest("d1"), 1),
        (Drop("d1"), 11),
        (Connect("d1"), 1),
        (Beat("active"), 61),
        (Act("d2"), 1),
        (SignOut("d2"), 2),
        (Drop("d1", vanish=True), 61),
        (Beat("idle"), 61),
        (Connect("d2"), 5),
    ),
)
"""One of each, in an order that makes sense: what a planted leak is looked for with."""
