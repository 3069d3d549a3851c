"""One user as seen through one view scope: the bytes that all viewers with this scope are sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herenow.core.limits import DeliveryMode
from herenow.core.model import Presence
from herenow.core.visibility import ViewScope
from herenow.wire.shapes import with_delivery

if TYPE_CHECKING:
    from herenow.node.people.outbox import Outbox
    from herenow.node.people.people import Person

FEW = 64
"""Viewers that a channel keeps in a list, which has a fifth of a dictionary's size; who leaves is searched for there."""


@dataclass(slots=True, eq=False, repr=False)
class Channel:
    """One target through one kind of eyes."""

    person: Person
    sight: ViewScope
    shown: Presence = field(init=False)
    """What the body was made from."""
    body: bytes = b""
    outboxes: list[Outbox] | dict[Outbox, None] = field(default_factory=list)
    """In the order they came."""
    delivery: DeliveryMode | None = None
    """How changes reach the viewers, when not at once: the same for everybody who looks at this person."""

    def add(self, outbox: Outbox) -> None:
        """One that is not here."""
        outboxes = self.outboxes
        if isinstance(outboxes, dict):
            outboxes[outbox] = None
        elif len(outboxes) < FEW:
            outboxes.append(outbox)
        else:
            self.outboxes = dict.fromkeys((*outboxes, outbox))

    def remove(self, outbox: Outbox) -> None:
        """One that is here."""
        if isinstance(self.outboxes, dict):
            del self.outboxes[outbox]
        else:
            self.outboxes.remove(outbox)

    @property
    def said(self) -> bytes:
        """The body as viewers get it. That changes are paced is told with a change, not for its own sake; that they are
        not pushed at all has to be known, and is part of the body."""
        if self.delivery is DeliveryMode.PACED:
            return with_delivery(self.body, self.delivery)
        return self.body
