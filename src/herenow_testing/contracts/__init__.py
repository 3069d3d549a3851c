"""Test suites that every engine (`EngineContract`) and every ledger (`LedgerContract`) must pass.

Subclass one in a test module and provide your implementation as a fixture; the suite's module shows how. For readable
failures call `pytest.register_assert_rewrite("herenow_testing.contracts")` in your `conftest.py`.
"""

from herenow_testing.contracts.engine import TERMS, EngineContract
from herenow_testing.contracts.ledger import LedgerContract

__all__ = ["TERMS", "EngineContract", "LedgerContract"]
