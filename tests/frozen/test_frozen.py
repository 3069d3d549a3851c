"""Public contracts change only on purpose: each equals its committed file.

After an intended change run `.venv/bin/python -m tests.frozen` and commit the difference.
"""

import pytest
from tests.frozen.contracts import CONTRACTS, FOLDER


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_public_contract_equals_its_frozen_file(name):
    assert CONTRACTS[name]() == (FOLDER / name).read_text()
