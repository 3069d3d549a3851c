"""Every block of a guide is run by a test."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.docs.snippets import ROOT, blocks, covered

HERE = Path(__file__).parent

NOT_FOLLOWED = {
    "docs/ledger.md": "SQL and addresses of a database; tests/ledgers and tests/cli/test_postgres.py run what they say",
    "docs/operating.md": "addresses of a store; tests/engines run what they name",
    "docs/protocol.md": "frames and paths; tests/test_docs.py, tests/wire and tests/api compare them",
    "docs/relations-callback.md": "questions and answers; examples/relations_app.py is run as it is",
    "docs/watching.md": "commands whose every option tests/cli/test_top.py and test_token.py try, and a picture",
    "docs/twins.md": "tests/twins/test_twins.py is that block, and more",
}
"""Reference pages: their blocks are not steps of a guide and are tested elsewhere."""


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "clients" / "js" / "README.md"]
    found += [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in ("decisions", "reference")]
    names = (str(page.relative_to(ROOT)) for page in found)
    return sorted(name for name in names if name not in NOT_FOLLOWED)


@pytest.fixture(scope="module", autouse=True)
def _all_tests_are_known():
    for module in HERE.glob("test_*.py"):
        importlib.import_module(f"tests.docs.{module.stem}")


@pytest.mark.parametrize("page", pages())
def test_every_code_block_of_the_guides_is_run_by_a_test(page):
    forgotten = [f"{page}:{block.line}" for block in blocks(page) if (page, block.name or "") not in covered]
    assert not forgotten, "name it in a comment above it, and run it in tests/docs"


@pytest.mark.parametrize("page", pages())
def test_names_of_code_blocks_on_a_documentation_page_are_unique(page):
    named = [block.name for block in blocks(page) if block.name]
    assert len(named) == len(set(named))
    fences = re.findall(r"^ *```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page)), "a block begins or ends in a way that the tests do not read"


def test_every_code_block_that_a_documentation_test_runs_exists():
    there = {(block.page, block.name) for page in pages() for block in blocks(page)}
    assert covered <= there


def test_documentation_pages_excluded_from_the_tests_exist_and_have_code_blocks():
    assert all(blocks(page) for page in NOT_FOLLOWED)
