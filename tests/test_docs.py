"""The pages agree with the code: generated tables, links, and cited tests."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.faults.misfortunes import MISFORTUNES

from herenow.node.people import Channel, Connection, LocalSession, Outbox, Person, RecordState
from herenow.node.people.people import Watchers
from herenow.wire.decode import TYPES
from herenow.wire.shapes import SERVER_TYPES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / folder / "README.md" for folder in ("spec", "clients/js", "src/herenow_testing")]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["codes.md", "settings.md"])
def test_the_generated_reference_pages_for_codes_and_settings_are_up_to_date(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == generator().pages()[name], "run python docs/generate.py"


@pytest.mark.parametrize("types", [TYPES, SERVER_TYPES], ids=["client", "server"])
def test_every_frame_type_is_documented_in_protocol_md(types: frozenset[str]) -> None:
    protocol = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert not [frame for frame in types if f"`{frame}`" not in protocol and f'"{frame}"' not in protocol]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_documentation_pages_resolve(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_index_of_the_documentation_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    folders = [ROOT / "docs", ROOT / "docs" / "how-to"]
    pages = [page.relative_to(ROOT / "docs") for folder in folders for page in folder.glob("*.md")]
    assert not [page for page in pages if page.name != "README.md" and f"]({page})" not in index]


def test_architecture_md_names_every_folder_of_the_server() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = [p.name for p in (ROOT / "src" / "herenow").iterdir() if p.is_dir() and not p.name.startswith("__")]
    assert not [folder for folder in folders if f"`{folder}/`" not in text]


def test_every_failure_listed_in_what_survives_what_md_names_existing_tests() -> None:
    page = (ROOT / "docs" / "what-survives-what.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| what fails")]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r"`tests/\S+::\w+`", row), f"names no test: {row}"
    named = re.findall(r"`(tests/\S+?)::(\w+)`", page)
    for path, name in named:
        assert re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8")), f"{path}::{name}"
    told = {name.replace("_", " ") for path, name in named if path.endswith("misfortunes.py")}
    assert told == set(MISFORTUNES), "a misfortune of the fault bench and the page differ"


SITUATIONS = {"A": 10, "B": 9, "C": 8, "D": 9, "E": 21, "F": 9, "G": 17, "H": 4, "I": 7, "J": 10}
"""Number of situations per letter, so that a missing one is noticed."""


def test_every_situation_is_listed_in_situations_md_and_names_existing_tests() -> None:
    page = (ROOT / "docs" / "situations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-J]\d+) \|.*\| (.+) \|$", page, re.MULTILINE)
    wanted = [f"{letter}{number}" for letter, last in SITUATIONS.items() for number in range(1, last + 1)]
    assert [situation for situation, _ in rows] == wanted
    for situation, shown_by in rows:
        named = re.findall(r"`(tests/\S+?\.py)::(\w+)`", shown_by)
        assert named, f"{situation} names no test"
        assert len(named) == shown_by.count("`") // 2, f"{situation} names something that is no test"
        for path, name in named:
            assert name in collected(path), f"{situation}: {path}::{name}"


def test_situations_md_names_the_test_on_a_real_valkey_for_exactly_the_situations_it_covers() -> None:
    page = (ROOT / "docs" / "situations.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([A-J]\d+) \|.*test_a_situation_tested_in_memory_also_holds_on_a_real_valkey", page, re.MULTILINE
    )
    scenes = (ROOT / "tests" / "cluster" / "test_situations_on_redis.py").read_text(encoding="utf-8")
    told = {found.upper() for found in re.findall(r"    test_\w+\.test_([a-j]\d+)_\w+,", scenes)}
    assert set(rows) == told


def test_objects_md_lists_every_field_of_the_described_classes() -> None:
    page = (ROOT / "docs" / "objects.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`(.+?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    classes = (Person, RecordState, Watchers, LocalSession, Connection, Channel, Outbox)
    for each in classes:
        listed = {
            name for row in re.findall(r"^\| (`.+?) \|", sections[each.__name__], re.M) for name in row.split("`")
        }
        assert not [field for field in each.__slots__ if field not in listed], each.__name__


def collected(path: str) -> set[str]:
    """Tests that pytest finds in this file; for the fault bench, its misfortunes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    if path == "tests/faults/misfortunes.py":
        return {name.replace(" ", "_") for name in MISFORTUNES} & functions
    assert Path(path).name.startswith("test_"), f"{path} is not collected"
    classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    return {name for name in functions if name.startswith("test_")} | {
        name for name in classes if name.startswith("Test")
    }


def test_every_guarantee_in_privacy_md_names_existing_tests() -> None:
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    guarantees = [line for line in page.splitlines() if line.startswith("- **")]
    assert len(guarantees) > 10
    for line in guarantees:
        assert re.search(r"`tests/\S+::test_\w+`", line), f"names no test: {line}"
    for path, name in re.findall(r"`(tests/\S+?)::(\w+)`", page):
        assert re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8")), f"{path}::{name}"
