"""Calls from `records` to the parts above it, each of which subscribes once, when it is built."""

from __future__ import annotations

from typing import Protocol

from herenow.core.settle import Edit
from herenow.node.people import LocalSession, Person


class SessionEvents(Protocol):
    """Implemented by `sessions`."""

    def on_committed(self, session: LocalSession) -> None:
        """Called when the record contains the session as live."""

    def on_ended(self, session: LocalSession, why: str) -> None:
        """Called when the session must end, because the record does not contain it. `why`: `signed_out` on another
        node, or `refused` because the user has too many sessions."""

    def on_loss_committed(self, session: LocalSession) -> None:
        """Called when the record contains the session as lost: this node need not hold it any longer."""


class StoreEvents(Protocol):
    """Implemented by `cluster`."""

    def on_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """Called when the shard has lost data. `row`: the batch number that the shard's fence has for this node, if
        that showed the loss. `asked`: monotonic time of the request that showed it."""

    def on_writable(self, shard: int) -> None:
        """Called when the shard accepted a write again after an outage."""

    def on_remote_change(self, person: Person) -> None:
        """Called when a read returned a newer record of a watched user before the log did."""


class DeletionRule(Protocol):
    """Implemented by `admin`."""

    def enforce_deletion(self, person: Person) -> list[Edit]:
        """If the user was deleted, end the sessions from before that, and return edits that erase older data from the
        record. Called before every decision."""


class RecordEvents:
    def subscribe_sessions(self, listener: SessionEvents) -> None:
        self.on_committed = listener.on_committed
        self.on_ended = listener.on_ended
        self.on_loss_committed = listener.on_loss_committed

    def subscribe_store(self, listener: StoreEvents) -> None:
        self.on_loss = listener.on_loss
        self.on_writable = listener.on_writable
        self.on_remote_change = listener.on_remote_change

    def subscribe_deletions(self, rule: DeletionRule) -> None:
        self.enforce_deletion = rule.enforce_deletion
