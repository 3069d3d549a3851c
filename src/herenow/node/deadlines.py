"""Time limits that several parts of the node share."""

LEDGER_DEADLINE = 10.0  # seconds for one call to the ledger; generous, because no status waits for it
CLOCK_SKEW = 2_000  # milliseconds by which the clocks of two nodes may differ: a time counts as later only beyond that
