"""Finds channels with exactly the same viewers, so that work per viewer is done once for all of them.

A thousand screens that show the same list watch the same users. Then one check shows that none of their viewers is ready,
and the changes of a flush interval are collected once. Sets are compared in C, and again only after a viewer came or went.

Nothing is kept while no flush is scheduled, nor for channels with fewer than `MANY` viewers, where checking each is as
cheap, nor beyond `MOST` different sets, which gain little and take memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herenow.node.people import Channel, Outbox

MANY = 100
"""Viewers from which on a set pays off."""

MOST = 100

ViewerSet = frozenset["Outbox"]
"""Equal sets are one object, so that comparing them costs nothing."""


@dataclass(slots=True, eq=False, repr=False)
class SharedViewerSets:
    alike: dict[Channel, ViewerSet] = field(default_factory=dict)
    """Channels whose viewers were compared and have not changed since."""
    _known: dict[ViewerSet, _Known] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, channel: Channel) -> ViewerSet | None:
        """Return the channel's viewers as a set; channels with the same viewers get the same object. None: fewer than
        `MANY` viewers, or too many different sets."""
        shared = self.alike.get(channel)
        if shared is not None or len(channel.outboxes) < MANY:
            return shared
        viewers = frozenset(channel.outboxes)
        known = self._known.get(viewers)
        if known is None:
            if len(self._known) >= MOST:
                return None
            known = self._known[viewers] = _Known(viewers)
        known.channels += 1
        self.alike[channel] = known.viewers
        return known.viewers

    def changed(self, channel: Channel) -> None:
        """Forget the set of the channel's viewers. Call when a viewer of the channel comes or goes."""
        shared = self.alike.pop(channel, None)
        if shared is not None:
            known = self._known[shared]
            known.channels -= 1
            if not known.channels:
                del self._known[shared]

    def forget(self) -> None:
        self.alike.clear()
        self._known.clear()


@dataclass(slots=True, eq=False, repr=False)
class _Known:
    viewers: ViewerSet
    channels: int = 0
