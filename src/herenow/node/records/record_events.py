"""Calls from `records` to the parts above it, each of which subscribes once, when it is built."""

from __future__ import annotations

from typing import Protocol

from herenow.core.settle import Edit
from herenow.node.people import LocalSession, Person


class SessionEvents(Protocol):
    """Implemented by `sessions`."""

    def on_committed(self, session: LocalSession) -> None:
        """The record contains the session as live."""

    def on_ended(self, session: LocalSession, why: str) -> None:
        """The record does not contain the session. `why`: `signed_out` elsewhere, or `refused` as one too many."""

    def on_loss_committed(self, session: LocalSession) -> None:
        """The record contains the session as lost: it need not be held any longer."""


class StoreEvents(Protocol):
    """Implemented by `cluster`."""

    def on_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        """The shard lost data. `row`: number in our fence, if that showed it. `asked`: monotonic time of the request."""

    def on_writable(self, shard: int) -> None:
        """The shard took a write again after an outage."""

    def on_remote_change(self, person: Person) -> None:
        """A read returned a newer record of a watched user before the log did."""


class DeletionRule(Protocol):
    """Implemented by `admin`."""

    def enforce_deletion(self, person: Person) -> list[Edit]:
        """Called before every decision. Ends sessions from before a deletion; returns edits that erase other data."""


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
