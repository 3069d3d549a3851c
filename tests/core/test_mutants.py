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
def test_the_code_fragment_that_a_mutant_replaces_occurs_once_in_the_source_code(mutant):
    assert len(places(mutant.fragment)) == 1


def test_the_tests_listed_for_code_mutants_pass_on_the_unchanged_code(verdicts):
    assert verdicts[""] == 0


@each_mutant
def test_each_code_mutant_is_caught_by_the_tests_listed_for_it(mutant, verdicts):
    assert verdicts[mutant.name] == 1


def test_the_names_of_code_mutants_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
