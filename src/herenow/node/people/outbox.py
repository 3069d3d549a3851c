"""What waits for one viewer's connection: not messages, but *whom* it has not heard the latest of.

So a backlog is bounded by what the viewer watches, a slow reader gets the latest values when it resumes, and nothing
stale or forbidden can wait in it: the value is taken, under the rules of that moment, when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herenow.kit.idset import NO_IDS, Ids

if TYPE_CHECKING:
    from herenow.node.people.channel import Channel


NOBODY: frozenset[str] = frozenset()
"""One for all: Python makes another empty set, of 216 bytes, each time it is asked for one."""


@dataclass(slots=True, eq=False, repr=False)
class ChangeSet:
    """What changed in a tick for the same viewers. Each is itself, however equal: cheap to find again."""

    channels: tuple[Channel, ...]


@dataclass(slots=True, eq=False, repr=False)
class Outbox:
    """Belongs to one connection. Clean (`dirty` empty) means: it has been sent what its channels say now."""

    user: str
    send: Callable[[bytes], None]
    abort: Callable[[], None]
    """End a connection that does not read."""
    ready: bool = True
    """Nothing was sent in this tick: the next change goes out at once."""
    closed: bool = False
    follows_contacts: bool = False
    """Subscribed to "contacts": whoever becomes one is watched too."""
    muted: frozenset[str] = NOBODY
    """Contacts it has unsubscribed from one by one: they are not brought back by following contacts."""
    paused_at: float | None = None
    """Since when the peer has not been reading."""
    hears_own: bool = False
    """It is one of the user's own devices, and has been told how they are."""
    had_own: int | None = None
    """The user's own view changed: this one it last heard of (`Person.own_view`). None: it is up to date."""
    dirty: dict[Channel, bytes] | None = None
    """Channels that changed, with the body this viewer last had of them, where `ticks` does not know it."""
    unheard: list[ChangeSet] | None = None
    """Filled and emptied at the end of a tick: what changed in it."""
    watching: Ids = NO_IDS
    """Whom it watches. Through which channel follows from the person: it is among the viewers of one of theirs."""
    truth: bool = False
    """A service looks, in nobody's name: it sees what is."""
    pending_targets: frozenset[str] = NOBODY
    """Whom it asked for and may not see; whoever of them it may see later is watched then."""

    def misses(self, channel: Channel, had: bytes) -> None:
        """It has not heard of a change there, and had this; unless it missed one already, and had something older."""
        if self.dirty is None:
            self.dirty = {channel: had}
        else:
            self.dirty.setdefault(channel, had)

    def heard(self, channel: Channel) -> bytes | None:
        """There is nothing left to hear of there. Answers what it had, if it missed something."""
        return self.dirty.pop(channel, None) if self.dirty else None
