"""The rules of presence: pure values and functions. No clock, no I/O, no asyncio; time is an argument.

A session is one device of a user, held by one node or kept alive by REST heartbeats:

    connects ─▶ live ── connection lost ─▶ in grace ── `grace` ms pass ─▶ removed
                 ▲                            │
                 └────────── returns ─────────┘            a sign-out removes it at once, from either state

`model` defines the record of a user. `settle` computes the next record; start reading there. It calls, in this order,
`reconcile.apply_evidence`, `timeline`, `edits`, `reconcile`, and `status` after each. `visibility` decides what a
viewer sees of a record.
"""
