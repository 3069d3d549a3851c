"""Updates that wait for one connection of a viewer: not messages, but the channels of which it lacks the latest status.

So a backlog is bounded by the number of watched users, a slow reader gets the latest values when it resumes, and no stale or
forbidden value waits: the value is read, under the rules of that moment, when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herenow.kit.idset import NO_IDS, Ids

if TYPE_CHECKING:
    from herenow.node.people.channel import Channel


NOBODY: frozenset[str] = frozenset()
"""One shared object: each new empty set takes 216 bytes."""


@dataclass(slots=True, eq=False, repr=False)
class ChangeSet:
    """Channels that changed in a flush interval for the same viewers. Compared by identity, as a part of dictionary keys."""

    channels: tuple[Channel, ...]


@dataclass(slots=True, eq=False, repr=False)
class Outbox:
    """Belongs to one connection. `dirty` empty means: the connection was sent the current status of each of its channels."""

    user: str
    send: Callable[[bytes], None]
    abort: Callable[[], None]
    ready: bool = True
    """Nothing was sent in this flush interval: the next change goes out at once."""
    closed: bool = False
    follows_contacts: bool = False
    muted: frozenset[str] = NOBODY
    paused_at: float | None = None
    """Monotonic time in seconds since when the client does not read; None: it reads."""
    gets_own: bool = False
    had_own: int | None = None
    """`Watchers.own_view` that the connection last got, if that has changed since; None: it is up to date."""
    dirty: dict[Channel, bytes] | None = None
    """Channels with unsent changes, and the encoded status last sent, where `FlushScheduler.touched` does not have that."""
    unsent: list[ChangeSet] | None = None
    """Changes of the flush interval that ends now; filled and emptied within that flush."""
    watching: Ids = NO_IDS
    """Ids of the watched users. The channel of each is the one that contains this outbox (`watched_by`)."""
    truth: bool = False
    pending_targets: frozenset[str] = NOBODY

    def add_missed(self, channel: Channel, had: bytes) -> None:
        """Record that the connection was not sent a change of this channel. `had`: the encoded status that it last got;
        if an earlier change was missed too, the older one is kept."""
        if self.dirty is None:
            self.dirty = {channel: had}
        else:
            self.dirty.setdefault(channel, had)

    def take_missed(self, channel: Channel) -> bytes | None:
        """Forget that the connection missed changes of this channel, because it is up to date. Returns the encoded
        status that it last got; None: it missed nothing."""
        return self.dirty.pop(channel, None) if self.dirty else None
