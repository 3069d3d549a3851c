"""The actions of the target user before and after it hides, as values that can be printed, stored and replayed.

A step need not be possible: an action on a device that is not connected does nothing, in both worlds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

DEVICES = ("d1", "d2")
PLATFORMS = {"d1": "mobile", "d2": "desktop"}
PAUSES = (1, 9, 11, 20, 39, 41, 61, 120)
"""Seconds between steps, below and above `grace` (10), `dead_after` (40) and `idle_after` (60)."""


@dataclass(frozen=True, slots=True)
class Connect:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Act:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Rest:
    """Report that the device is idle."""

    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Drop:
    """The socket closes; with `vanish` it becomes half-open instead."""

    device: str = "d1"
    vanish: bool = False


@dataclass(frozen=True, slots=True)
class SignOut:
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Choose:
    """Set a mode, which ends after `ends_in` seconds (None: no end)."""

    mode: str = "busy"
    ends_in: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Set a custom status, which ends after `ends_in` seconds (None: no end); `text=None` clears it."""

    text: str | None = "here"
    ends_in: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """Type to the friend, or in the room."""

    room: bool = False
    device: str = "d1"


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a heartbeat over REST, from a device without a socket."""

    activity: str | None = None


@dataclass(frozen=True, slots=True)
class FriendBlocks:
    """The friend, a viewer, blocks the target, in both worlds. The friend lifts the block with the next requests of the
    viewers (`cases`)."""


Step: TypeAlias = Connect | Act | Rest | Drop | SignOut | Choose | Write | Type | Beat | FriendBlocks


@dataclass(frozen=True, slots=True)
class History:
    """Lists of (step, seconds until the next step)."""

    shared: tuple[tuple[Step, int], ...] = ()
    """The steps of both twins."""
    hidden: tuple[tuple[Step, int], ...] = field(default=())
    """The steps of the hidden twin after it hid; the other twin is gone. Those of viewers are taken in both worlds."""


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
        (FriendBlocks(), 1),
    ),
)
"""Each kind of step at least once; used to check that planted leaks are found."""
