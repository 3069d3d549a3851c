"""Viewing: what users see of each other, and the rules they set for it.

`subscriptions` and `streams` watch, `views` answers reads, `reevaluation` applies changed rules to what is watched, `typing`
delivers typing notices, `privacy` and `graph` write blocks, preferences and relations.
"""

from __future__ import annotations

from herenow.node.access import RelationCache
from herenow.node.cluster import Cluster
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.records import Records
from herenow.node.sessions import Sessions
from herenow.node.viewing.graph import Graph
from herenow.node.viewing.polling import Polling
from herenow.node.viewing.privacy import Privacy
from herenow.node.viewing.reevaluation import Reevaluation
from herenow.node.viewing.relation_events import RelationEvents
from herenow.node.viewing.streams import Stream, Streams
from herenow.node.viewing.subscriptions import Granted, Subscriptions
from herenow.node.viewing.typing import TypingRooms
from herenow.node.viewing.views import Views
from herenow.ports import LedgerChange

__all__ = ["Granted", "Stream", "Streams", "Viewing", "Views"]


class Viewing:
    def __init__(
        self,
        context: Context,
        delivery: Delivery,
        records: Records,
        sessions: Sessions,
        cluster: Cluster,
        access: RelationCache,
    ) -> None:
        self._records = records
        self.subscriptions = subscriptions = Subscriptions(context, delivery, records, access)
        self.reevaluation = reevaluation = Reevaluation(context, delivery, access, subscriptions)
        self.streams = streams = Streams(context, delivery, subscriptions)
        self.views = views = Views(context, delivery, records, access)
        self.polling = polling = Polling(context, records)
        self.typing_rooms = typing = TypingRooms(context, delivery, records, cluster.messages, access)
        relation_events = RelationEvents(cluster.messages, access, reevaluation, typing)
        self.privacy = privacy = Privacy(context, records, relation_events)
        self.graph = graph = Graph(context, relation_events)
        # Watch
        self.subscribe = subscriptions.subscribe
        self.subscribe_contacts = subscriptions.subscribe_contacts
        self.unsubscribe = subscriptions.unsubscribe
        self.unsubscribe_contacts = subscriptions.unsubscribe_contacts
        self.open_stream = streams.open
        self.close_stream = streams.gone
        self.end_streams = streams.end_all
        self.end_void_streams = streams.end_void

        # Read
        self.statuses = views.statuses
        self.statuses_of_records = views.statuses_of_records
        self.me = views.me
        self.presence = views.presence
        self.count = views.count
        self.leaderboard = views.leaderboard
        self.profile = views.profile
        self.wait_before_poll = polling.wait

        # Type
        self.type = typing.typing
        self.open_room = typing.open_room
        self.close_room = typing.close_room

        # Set the rules
        self.preferences = privacy.preferences
        self.change_preferences = privacy.change
        self.blocked = privacy.blocked
        self.wait_before_block = privacy.wait_before_block
        self.block = privacy.block
        self.unblock = privacy.unblock
        self.apply_relations = graph.apply
        self.relations_changed = graph.changed_elsewhere
        self.follows = graph.follows
        self.contact = graph.contact
        self.is_member = graph.is_member

        # Calls from below
        self.on_connection_closed = typing.on_connection_closed
        self.on_facts_old = reevaluation.on_facts_old
        self.on_facts_expired = reevaluation.on_facts_expired
        self.on_answers = reevaluation.reevaluate_all
        sessions.subscribe(self)
        access.subscribe(self)

    def on_ledger_change(self, change: LedgerChange) -> None:
        self.reevaluation.on_ledger_change(change)
        self.typing_rooms.on_ledger_change(change)

    def on_trust_change(self, *, trusted: bool) -> None:
        self.reevaluation.on_trust_change()
        if trusted:  # the ledger may have gone back in time
            self._records.start_run_over()
