"""The source as syntax trees, for tests about its structure: modules, packages, imports, constructors, names."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import herenow

ROOT = Path(herenow.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


class Edge(NamedTuple):
    """One import: the importing module and the loaded module."""

    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


def name_of(path: Path) -> str:
    """For example `node/records/writer.py`."""
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """For example `herenow.node.records.writer`; the name of a package's `__init__` is the package."""
    parts = ["herenow", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


@functools.cache
def modules() -> Mapping[str, Path]:
    """Dotted name → path."""
    return {dotted(path): path for path in MODULES}


@functools.cache
def packages() -> frozenset[str]:
    """Dotted names of the packages below `herenow`."""
    return frozenset(dotted(path) for path in MODULES if path.name == "__init__.py") - {"herenow"}


@functools.cache
def imports(path: Path) -> list[str]:
    """Dotted names of all modules a file imports, including imports inside functions and for type checkers. `from
    herenow.kit import clock` and `from herenow.kit.clock import Clock` both import `herenow.kit.clock`.
    """
    return list(imported_modules(nodes(path)))


def imported_modules(found: Iterable[ast.AST]) -> Iterator[str]:
    for node in found:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else str(node.module)


@functools.cache
def edges() -> tuple[Edge, ...]:
    """Every import between two modules of the server, once."""
    found = {Edge(name, imported) for name, path in modules().items() for imported in imports(path)}
    return tuple(sorted(edge for edge in found if edge.imported.split(".")[0] == "herenow"))


def ancestors(name: str) -> list[str]:
    """The enclosing packages of a module, outermost first, without `herenow` and the module itself."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts))]


def assert_none(offenders: Iterable[str]) -> None:
    """Fail with one line per offender: pytest would shorten a long list."""
    found = sorted(set(offenders))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def lies_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
