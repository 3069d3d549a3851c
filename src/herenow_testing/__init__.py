"""Tools for testing herenow, and for testing engines, ledgers and visibility rules of your own.

| package | contents |
|---|---|
| `contracts` | test suites that every engine and every ledger must pass |
| `faults` | an engine that fails by a plan; freezing and killing simulated processes |
| `world` | a cluster with its clients in one process, clocks that tests advance, a ledger in memory |
| `checker` | compares what clients were shown with what other clients did |
| `twins` | tests that viewers cannot distinguish a hidden user from one that signed out |

It is a separate distribution (`pip install ./src/herenow_testing` in a checkout); the server never imports it.
"""
