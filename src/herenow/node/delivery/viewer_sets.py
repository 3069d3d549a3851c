"""Which of the people who are watched by many have exactly the same viewers?

A thousand screens that show the same list watch the same people. What is true of the viewers of one of these is then true
of the viewers of all, and need not be asked viewer by viewer: that nobody of them may be sent to before the tick ends, and
whom the changes of a tick are for. Equal is equal: compared viewer by viewer, in C, once until somebody comes or goes.

Nothing is kept while it is calm, nor of those whom few watch: there a look at each viewer is as cheap. Nor of more than
`MOST` kinds of viewers: a node that has so many different ones gains little by it, and should not pay in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herenow.node.people import Channel, Outbox

MANY = 100
"""Viewers from which on a set of them pays."""

MOST = 100
"""Different sets at a time."""

ViewerSet = frozenset["Outbox"]
"""Equal ones are one object, so that telling them apart costs nothing."""


@dataclass(slots=True, eq=False, repr=False)
class SharedViewerSets:
    alike: dict[Channel, ViewerSet] = field(default_factory=dict)
    """Whose viewers were compared, and nobody came or went since."""
    _known: dict[ViewerSet, _Known] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, channel: Channel) -> ViewerSet | None:
        """Its viewers; None: they are few, or of one kind too many."""
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
        """Somebody looks at it, or away."""
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
    """A set of viewers, and the number of channels that have exactly these."""

    viewers: ViewerSet
    channels: int = 0
