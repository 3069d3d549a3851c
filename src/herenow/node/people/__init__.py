"""People: the users this node knows, and the state of their records, sessions and connections.

Objects only; the parts of the node write them. `Person.record` is written by `records`, `Person.held` by `sessions`,
`Person.watchers` by `delivery` (`tests/test_owners.py`); `docs/objects.md` describes each field.
"""

from herenow.node.people.channel import Channel
from herenow.node.people.connection import Connection
from herenow.node.people.local_session import LocalSession
from herenow.node.people.outbox import NOBODY, ChangeSet, Outbox
from herenow.node.people.people import REMEMBER_RELEASED, People, Person, without
from herenow.node.people.record_state import InFlightCommit, PendingEdit, RecordState, newest_missing

__all__ = [
    "NOBODY",
    "REMEMBER_RELEASED",
    "ChangeSet",
    "Channel",
    "Connection",
    "InFlightCommit",
    "LocalSession",
    "Outbox",
    "PendingEdit",
    "People",
    "Person",
    "RecordState",
    "newest_missing",
    "without",
]
