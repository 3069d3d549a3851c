"""Two distributions are built from this repository: the server, and `herenow_testing` with the testing tools.

`tests/test_layers.py` checks that the server does not import the second.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from herenow import __version__

ROOT = Path(__file__).parent.parent
TESTING = ROOT / "src" / "herenow_testing"
MODULE_OF = {"pytest-asyncio": "pytest_asyncio"}
"""Distributions whose module has another spelling."""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels and the source archive of the second distribution."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel")
    build(TESTING, folder, "wheel", "sdist")
    return folder


def test_the_wheel_of_the_server_contains_no_testing_tools(dist: Path) -> None:
    files = packed(dist, f"herenow-{__version__}-*.whl")
    assert "herenow/app.py" in files
    assert "herenow/api/static/dashboard/uplot.LICENSE" in files
    assert folders(files) == {"herenow", f"herenow-{__version__}.dist-info"}


def test_the_wheel_of_the_testing_tools_contains_all_their_modules_and_nothing_else(dist: Path) -> None:
    files = packed(dist, f"herenow_testing-{__version__}-*.whl")
    assert folders(files) == {"herenow_testing", f"herenow_testing-{__version__}.dist-info"}
    sources = {path.relative_to(TESTING.parent).as_posix() for path in TESTING.rglob("*.py")}
    inside = {name for name in files if name.startswith("herenow_testing/")}
    assert inside == sources | {"herenow_testing/py.typed"}


def test_a_wheel_built_from_the_source_archive_equals_one_built_from_the_repository(dist: Path, tmp_path: Path) -> None:
    [archive] = dist.glob("herenow_testing-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path, "wheel")
    assert packed(tmp_path, "*.whl") == packed(dist, "herenow_testing-*.whl")


def test_the_testing_tools_have_the_version_of_the_server_and_require_it() -> None:
    assert project(ROOT)["version"] == __version__
    assert project(TESTING)["version"] == __version__
    assert f"herenow=={__version__}" in project(TESTING)["dependencies"]


def test_the_package_of_testing_tools_requires_every_library_that_it_imports() -> None:
    names = {requirement.partition(">=")[0] for requirement in project(TESTING)["dependencies"]}
    required = {MODULE_OF.get(name, name) for name in names} - {f"herenow=={__version__}"}
    trees = [ast.parse(path.read_text()) for path in TESTING.rglob("*.py")]
    imported = {name.split(".")[0] for tree in trees for name in imported_names(tree)}
    assert imported - sys.stdlib_module_names - {"herenow", "herenow_testing"} == required


def build(source: Path, folder: Path, *targets: str) -> None:
    wanted = [part for target in targets for part in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *wanted]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def packed(folder: Path, pattern: str) -> set[str]:
    [wheel] = folder.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def folders(files: set[str]) -> set[str]:
    return {name.split("/")[0] for name in files}


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def imported_names(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(str(node.module))
    return found
