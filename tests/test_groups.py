"""pytest-xdist keeps the tests of an `xdist_group` on one worker. If it ignored the groups, tests would fail at random."""

import os
import subprocess
import sys

TESTS = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("together")
def test_each_test_of_the_group_writes_the_name_of_its_xdist_worker(number):
    Path(f"{number}.worker").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_all_tests_of_an_xdist_group_run_on_one_worker(tmp_path):
    (tmp_path / "test_together.py").write_text(TESTS)
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    alone["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # our plugins would take seconds to load in three processes
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path)], cwd=tmp_path, env=alone, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = [path.read_text() for path in tmp_path.glob("*.worker")]
    assert len(workers) == 8
    assert len(set(workers)) == 1
