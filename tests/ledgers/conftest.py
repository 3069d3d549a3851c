import pytest

pytest.register_assert_rewrite("herenow.testing.ledger_contract")
