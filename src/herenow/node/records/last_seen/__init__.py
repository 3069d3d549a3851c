"""Last seen in the ledger without the store's help: of users who are here, and of visits that the store did not hear of."""

from herenow.node.records.last_seen.run_markers import RunMarkers
from herenow.node.records.last_seen.uncommitted_ends import UncommittedEnds

__all__ = ["RunMarkers", "UncommittedEnds"]
