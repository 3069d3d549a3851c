"""Saves last seen in the ledger without the store: of visible users, and of sessions with an uncommitted end."""

from herenow.node.records.last_seen.run_markers import RunMarkers
from herenow.node.records.last_seen.uncommitted_ends import UncommittedEnds

__all__ = ["RunMarkers", "UncommittedEnds"]
