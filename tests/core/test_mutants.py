"""Each mutant of the core is caught by its named tests."""

import json
import subprocess
import sys

import pytest
from tests.core.mutants import MUTANTS, ROOT, places

pytestmark = pytest.mark.xdist_group("mutants")  # one worker runs all mutants once

each_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@pytest.fixture(scope="module")
def verdicts():
    """Name of the mutant → exit code of pytest."""
    run = [sys.executable, "-m", "tests.core.mutants"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout)


@each_mutant
def test_the_fragment_of_a_mutant_occurs_once_in_the_source(mutant):
    assert len(places(mutant.fragment)) == 1


def test_the_named_tests_pass_without_a_mutant(verdicts):
    assert verdicts[""] == 0


@each_mutant
def test_the_named_tests_catch_the_mutant(mutant, verdicts):
    assert verdicts[mutant.name] == 1


def test_names_of_mutants_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
