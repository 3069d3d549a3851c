"""Time limits that several parts of the node share."""

LEDGER_DEADLINE = 10.0
"""Seconds for one call to the ledger: a disk may be busy, and no status waits for it."""

CLOCK_SKEW = 2_000
"""Milliseconds by which the clocks of two nodes may differ: only a time that is later by more is later for sure."""
