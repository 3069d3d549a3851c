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
"""Viewers up to which a channel keeps a list: it has a fifth of a dictionary's size, but a removal searches it."""


@dataclass(slots=True, eq=False, repr=False)
class Channel:
    person: Person
    sight: ViewScope
    shown: Presence = field(init=False)
    body: bytes = b""
    outboxes: list[Outbox] | dict[Outbox, None] = field(default_factory=list)
    delivery: DeliveryMode | None = None
    """None: changes are sent at once. All channels of a user except `TRUTH` have the same mode."""

    def add(self, outbox: Outbox) -> None:
        """Add the outbox of a viewer, which must not be in the channel yet."""
        outboxes = self.outboxes
        if isinstance(outboxes, dict):
            outboxes[outbox] = None
        elif len(outboxes) < FEW:
            outboxes.append(outbox)
        else:
            self.outboxes = dict.fromkeys((*outboxes, outbox))

    def remove(self, outbox: Outbox) -> None:
        if isinstance(self.outboxes, dict):
            del self.outboxes[outbox]
        else:
            self.outboxes.remove(outbox)

    @property
    def sent_body(self) -> bytes:
        """The encoded status as viewers get it: `body`, plus a field that reports paced delivery. `body` lacks that
        field, so that nothing is sent when only paced delivery begins or ends."""
        if self.delivery is DeliveryMode.PACED:
            return with_delivery(self.body, self.delivery)
        return self.body
