import pytest

pytest.register_assert_rewrite("herenow.testing.engine_contract")
