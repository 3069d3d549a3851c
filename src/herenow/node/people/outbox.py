"""What waits for one viewer's connection: not messages, but *whom* it has not heard the latest of.

So a backlog is bounded by what the viewer watches, a slow reader gets the latest values when it resumes, and nothing
stale or forbidden can wait in it: the value is taken, under the rules of that moment, when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herenow.kit.idset import NO_IDS

if TYPE_CHECKING:
    from herenow.node.people.channel import Channel


NOBODY: frozenset[str] = frozenset()
"""One for all: Python makes another empty set, of 216 bytes, each time it is asked for one."""


class ChangeSet:
    """What changed in a tick for the same viewers. Each is itself, however equal: cheap to find again."""

    __slots__ = ("channels",)

    def __init__(self, channels: tuple[Channel, ...]) -> None:
        self.channels = channels


class Outbox:
    """Belongs to one connection. Clean (`dirty` empty) means: it has been sent what its channels say now."""

    __slots__ = (
        "abort",
        "closed",
        "dirty",
        "follows_contacts",
        "had_own",
        "hears_own",
        "muted",
        "paused_at",
        "pending_targets",
        "ready",
        "send",
        "truth",
        "unheard",
        "user",
        "watching",
    )

    def __init__(self, user: str, send: Callable[[bytes], None], abort: Callable[[], None]) -> None:
        self.user = user
        self.send = send
        self.abort = abort
        """End a connection that does not read."""
        self.ready = True
        """Nothing was sent in this tick: the next change goes out at once."""
        self.closed = False
        self.follows_contacts = False
        """Subscribed to "contacts": whoever becomes one is watched too."""
        self.muted = NOBODY
        """Contacts it has unsubscribed from one by one: they are not brought back by following contacts."""
        self.paused_at: float | None = None
        """Since when the peer has not been reading."""
        self.hears_own = False
        """It is one of the user's own devices, and has been told how they are."""
        self.had_own: int | None = None
        """The user's own view changed: this one it last heard of (`Person.own_view`). None: it is up to date."""
        self.dirty: dict[Channel, bytes] | None = None
        """Channels that changed, with the body this viewer last had of them, where `ticks` does not know it."""
        self.unheard: list[ChangeSet] | None = None
        """Filled and emptied at the end of a tick: what changed in it."""
        self.watching = NO_IDS
        """Whom it watches. Through which channel follows from the person: it is among the viewers of one of theirs."""
        self.truth = False
        """A service looks, in nobody's name: it sees what is."""
        self.pending_targets = NOBODY
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
