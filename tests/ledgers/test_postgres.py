"""The PostgreSQL ledger keeps the contract, for one node and for several at once."""

import pytest

from herenow.testing.ledger_contract import LedgerContract


class TestContract(LedgerContract):
    @pytest.fixture
    def ledger(self, ledger):
        return ledger
