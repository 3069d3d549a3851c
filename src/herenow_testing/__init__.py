"""Tools for testing herenow, and for testing engines, ledgers and visibility rules of your own.

| package | contents |
|---|---|
| `contracts` | test suites that every engine and every ledger must pass |
| `faults` | an engine that fails on purpose, by a plan; stopping and killing simulated processes |
| `world` | a cluster with its clients in one process, clocks that tests move, a ledger in memory |
| `checker` | compares what clients were shown with what other clients did |
| `twins` | shows that a hidden user cannot be told from one who signed out |

A distribution of its own (`pip install ./src/herenow_testing` in a checkout); the server never imports it.
"""
