"""Public contracts change only on purpose: each equals its committed file.

After an intended change run `.venv/bin/python -m tests.frozen` and commit the difference.
"""

import pytest
from tests.frozen.contracts import CONTRACTS, FOLDER


@pytest.mark.parametrize("name", CONTRACTS)
def test_settings_codes_frames_and_other_public_contracts_equal_their_committed_files(name):
    assert CONTRACTS[name]() == (FOLDER / name).read_text()
