"""Time limits that several parts of the node share."""

LEDGER_DEADLINE = 10.0
"""Seconds for one call to the ledger; generous, because no status waits for it."""

CLOCK_SKEW = 2_000
"""Milliseconds by which the clocks of two nodes may differ: a time counts as later only beyond that."""
