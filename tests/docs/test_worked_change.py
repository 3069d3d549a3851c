"""The worked change of CONTRIBUTING.md applies to the tree as it is, and the tests that it changes pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.snippets import ROOT

PATCH = ROOT / "docs" / "worked-change.patch"
COPIED = ("src", "tests", "spec", "docs", "clients/js/src")
"""Folders that the patch changes, or that its tests import."""
FILES = ("pyproject.toml", "CHANGELOG.md")
CONTRACT = "tests/frozen/test_frozen.py"
"""Compares the OpenAPI document, which the patch changes."""
OPTIONS = ("-q", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-k", "not log-events and not metrics")
"""Loading all plugins takes seconds; so do two contracts that the patch cannot change."""


def test_contributing_md_lists_the_files_of_its_example_patch_in_order() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## A worked change")[2]
    assert re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE) == changed()


def test_the_example_patch_of_contributing_md_applies_and_its_tests_pass(tmp_path: Path) -> None:
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for file in FILES:
        shutil.copy(ROOT / file, tmp_path / file)
    run(tmp_path, "git", "apply", "--verbose", str(PATCH))
    tests = [path for path in changed() if re.fullmatch(r"tests/.+/test_\w+\.py", path)]
    assert tests
    run(tmp_path, sys.executable, "-m", "pytest", *OPTIONS, *tests, CONTRACT)


def changed() -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)


def run(folder: Path, *command: str) -> None:
    """With the code of the copy, and outside of any repository that contains it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GIT_"))}
    environment |= {"PYTHONPATH": str(folder / "src"), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
