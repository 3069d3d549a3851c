import pytest

pytest.register_assert_rewrite("herenow_testing.contracts.engine")
