"""The source as syntax trees, for tests about its structure: modules, packages, imports, constructors, names."""

import ast
import functools
from pathlib import Path

import herenow

ROOT = Path(herenow.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path):
    """`node/records/writer.py`."""
    return str(path.relative_to(ROOT))


def dotted(path):
    """`herenow.node.records.writer`; a package's `__init__` is the package."""
    parts = ["herenow", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes(path):
    return list(ast.walk(tree(path)))


@functools.cache
def modules():
    """Dotted name → path."""
    return {dotted(path): path for path in MODULES}


@functools.cache
def imports(path):
    """Dotted names of every import, those inside functions and for type checkers included: the module that is loaded.
    `from herenow.kit import clock` is an import of `herenow.kit.clock`; `from herenow.kit.clock import Clock` too."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative imports hide the layer"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append(whole if whole in modules() else str(node.module))
    return found
