"""Protocols of the systems outside the process: engine (live store), ledger (database), source of relations.

`RelationRow` is defined by `wire`, which parses it, and re-exported here because `Ledger.apply` takes it.
"""

from herenow.ports.engine import (
    Batch,
    Committed,
    Conflict,
    Due,
    Engine,
    Entry,
    Fenced,
    Lease,
    Loaded,
    LogPart,
    LogPosition,
    Offer,
    Page,
    Write,
    Written,
    continues,
)
from herenow.ports.ledger import (
    BlockRow,
    Choice,
    Ledger,
    LedgerChange,
    LedgerFacts,
    Remembered,
    TooManyBlocks,
    Void,
    block_between,
    frozen_row,
    is_kept_when_lifted,
)
from herenow.ports.relations import IN_CONTACT, MUTUAL, STRANGERS, Relation, Relations, SourceHealth
from herenow.ports.terms import agree, disagreement, remedy
from herenow.wire.relation_rows import RelationRow

__all__ = [
    "IN_CONTACT",
    "MUTUAL",
    "STRANGERS",
    "Batch",
    "BlockRow",
    "Choice",
    "Committed",
    "Conflict",
    "Due",
    "Engine",
    "Entry",
    "Fenced",
    "Lease",
    "Ledger",
    "LedgerChange",
    "LedgerFacts",
    "Loaded",
    "LogPart",
    "LogPosition",
    "Offer",
    "Page",
    "Relation",
    "RelationRow",
    "Relations",
    "Remembered",
    "SourceHealth",
    "TooManyBlocks",
    "Void",
    "Write",
    "Written",
    "agree",
    "block_between",
    "continues",
    "disagreement",
    "frozen_row",
    "is_kept_when_lifted",
    "remedy",
]
