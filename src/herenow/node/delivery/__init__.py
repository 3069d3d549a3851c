"""Delivery: brings changes to the connections that watch a user.

Viewers with the same view scope share the encoded bytes (`channels`). A change goes out at once or at the end of a flush
interval (`flush`), paced for users with thousands of viewers (`fanout`, `paced`), and later on an overloaded node
(`overload`). `Delivery` is the face of this package; its attributes are the verbs that other parts use.
"""

from __future__ import annotations

from herenow.core.limits import DeliveryMode
from herenow.node.context import Context
from herenow.node.delivery.channels import Channels, watched_by
from herenow.node.delivery.hub import Hub
from herenow.node.delivery.overload import Overload
from herenow.node.delivery.status_cache import StatusCache

__all__ = ["Delivery", "StatusCache", "watched_by"]

LOOK = 0.25
"""Seconds between two calls of `Delivery.look`."""


class Delivery:
    def __init__(self, context: Context) -> None:
        self.channels = channels = Channels(context.people, context.clock)
        self.hub = hub = Hub(context, channels)
        self.overload = Overload(context.clock, LOOK, hub.shed)
        self._stuck_after = context.settings.stuck_after

        # Connections of a viewer
        self.add_outbox = hub.add_outbox
        self.forget = hub.forget
        self.watch = hub.watch
        self.unwatch = hub.unwatch
        self.change_scope = hub.change_scope
        self.join_own = hub.join_own
        self.pause = hub.pause
        self.resume = hub.resume

        # Changes of a user
        self.mark_changed = hub.mark_changed
        self.publish = hub.publish
        self.set_stale = hub.set_stale
        self.new_day = hub.new_day
        self.close = hub.close

        # Bytes for answers
        self.body = channels.body
        self.dated_bodies = channels.dated_bodies
        self.as_answered = channels.as_answered
        self.as_of = channels.as_of
        self.is_stale = channels.is_stale

        # Figures for operators
        self.viewers = hub.viewers
        self.top_targets = hub.top_targets

    def look(self) -> None:
        """Send delayed changes, measure the lag of the event loop, and abort connections that do not read. Call every
        `LOOK` seconds."""
        self.hub.catch_up()
        self.overload.look()
        for outbox in self.hub.stuck(self._stuck_after):
            outbox.abort()

    @property
    def today(self) -> int:
        return self.channels.today

    @property
    def stale_shards(self) -> int:
        return self.channels.stale_shards

    @property
    def stale_views(self) -> int:
        return self.channels.stale_views

    @property
    def popular(self) -> dict[DeliveryMode, int]:
        return self.hub.popular

    @property
    def paced_waiting(self) -> int:
        return self.hub.paced_waiting

    @property
    def gives_up_typing(self) -> bool:
        """True while this node is so overloaded that it drops typing notices."""
        return self.hub.gives_up_typing
