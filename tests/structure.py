"""Figures of the code's structure: sizes of folders, construction of a node, duplicate names.

    .venv/bin/python -m tests.structure        prints them, each with its target

Each figure is a function over the syntax trees, so that a test can compare it with its target (`tests/test_structure.py`)
and a reader can list the offenders. Nothing is imported or run.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.source_tree import MODULES, ROOT, dotted, lies_in, modules, name_of, nodes, tree

NODE = "herenow.node"
MOST_PARAMETERS = 6
BY_DESIGN_LARGE = {"core", "kit", "ledgers/migrations/versions"}
"""Folders that are lists of independent modules."""


@dataclass(frozen=True)
class Figure:
    name: str
    measure: Callable[[], int]
    target: int

    @property
    def holds(self) -> bool:
        return self.measure() <= self.target


# Folders and size


def folder_sizes() -> Mapping[str, int]:
    """Folder → number of modules without `__init__`."""
    return Counter(path.parent.relative_to(ROOT).as_posix() for path in MODULES if path.name != "__init__.py")


def largest_folder() -> int:
    """Without folders that are lists by design."""
    sizes = folder_sizes().items()
    return max(size for name, size in sizes if name not in BY_DESIGN_LARGE)


def lines_of_the_server() -> int:
    """Lines of Python without the SDK."""
    return sum(len(path.read_text().splitlines()) for path in MODULES if not lies_in(dotted(path), "herenow.client"))


# The class Node


def class_node() -> ast.ClassDef:
    [found] = [node for node in tree(modules()[NODE]).body if isinstance(node, ast.ClassDef) and node.name == "Node"]
    return found


def node_constructor() -> ast.FunctionDef:
    [found] = constructors_of(class_node())
    return found


def node_lines() -> int:
    """Lines that build a node: the body of its constructor and of the methods the constructor calls."""
    called = {
        call.func.attr
        for call in ast.walk(node_constructor())
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_self_attribute(call.func)
    }
    helpers = [it for it in class_node().body if isinstance(it, ast.FunctionDef) and it.name in called]
    return sum(lines_of_body(it) for it in [node_constructor(), *helpers])


def node_imports() -> int:
    """Import statements of the node's module that import from the server."""
    return sum(isinstance(it, ast.ImportFrom) and lies_in(str(it.module), "herenow") for it in nodes(modules()[NODE]))


def node_attributes() -> list[str]:
    return sorted(set(assigned_attributes(node_constructor())))


def node_callbacks() -> list[str]:
    """Functions that the constructor passes to the parts, as arguments or later: lambdas and methods."""
    handed = [*arguments_of(node_constructor()), *late_values_of(node_constructor())]
    return [ast.unparse(value) for value in handed if is_callback(value)]


def late_wiring() -> list[str]:
    """In `node/`: calls of `attach`, and assignments `on_… =` on another object."""
    found = []
    for path in in_node():
        for it in nodes(path):
            if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr == "attach":
                found.append(f"{name_of(path)}:{it.lineno} {ast.unparse(it.func)}")
            elif isinstance(it, ast.Assign):
                found += [f"{name_of(path)}:{it.lineno} {ast.unparse(t)}" for t in it.targets if is_late(t)]
    return found


# Constructors


def wide_constructors() -> list[str]:
    """Constructors in `node/` with more than six parameters."""
    return [
        f"{name_of(path)} {owner.name}: {parameters(function)}"
        for path, owner, function in node_constructors()
        if parameters(function) > MOST_PARAMETERS
    ]


def lines_of_constructors() -> int:
    return sum(lines(function) for _, _, function in node_constructors())


def node_constructors() -> Iterator[tuple[Path, ast.ClassDef, ast.FunctionDef]]:
    for path in in_node():
        for owner in nodes(path):
            if isinstance(owner, ast.ClassDef):
                yield from ((path, owner, function) for function in constructors_of(owner))


def constructors_of(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    return [it for it in owner.body if isinstance(it, ast.FunctionDef) and it.name == "__init__"]


def parameters(function: ast.FunctionDef) -> int:
    """Number of parameters without `self`."""
    every = function.args
    named = len(every.posonlyargs) + len(every.args) + len(every.kwonlyargs)
    return named - 1 + (every.vararg is not None) + (every.kwarg is not None)


# Person


def fields_of_person() -> list[str]:
    [person] = [
        it for it in nodes(modules()[f"{NODE}.people.people"]) if isinstance(it, ast.ClassDef) and it.name == "Person"
    ]
    declared = [it.target.id for it in person.body if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)]
    return sorted(
        {*declared, *(name for function in constructors_of(person) for name in assigned_attributes(function))}
    )


# Names that are used twice


def classes_defined_twice() -> Mapping[str, list[str]]:
    """Name → modules, in the server without the SDK, including private classes."""
    where = defaultdict(list)
    for path in MODULES:
        if not lies_in(dotted(path), "herenow.client"):
            for it in tree(path).body:
                if isinstance(it, ast.ClassDef):
                    where[it.name].append(name_of(path))
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def modules_named_twice() -> Mapping[str, list[str]]:
    """Name → folders."""
    where = defaultdict(list)
    for path in MODULES:
        if not path.name.startswith("__"):
            where[path.stem].append(name_of(path.parent))
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


# Helpers


def in_node() -> list[Path]:
    return [path for path in MODULES if lies_in(dotted(path), NODE)]


def lines(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def lines_of_body(function: ast.FunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.body[0].lineno + 1


def assigned_attributes(function: ast.FunctionDef) -> Iterator[str]:
    """`self.x = …`, with or without an annotation."""
    for it in ast.walk(function):
        if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store) and is_self_attribute(it):
            yield it.attr


def is_self_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_late(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr.startswith("on_") and not is_self_attribute(target)


def arguments_of(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for call in ast.walk(function):
        if isinstance(call, ast.Call):
            yield from call.args
            yield from (keyword.value for keyword in call.keywords)


def late_values_of(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """`part.on_… = value`."""
    for it in ast.walk(function):
        if isinstance(it, ast.Assign) and any(is_late(target) for target in it.targets):
            yield it.value


def is_callback(argument: ast.expr) -> bool:
    """True for a lambda, `self._method` and `self.part.method`. Parts have no public values that nodes pass on."""
    if isinstance(argument, ast.Lambda):
        return True
    if not isinstance(argument, ast.Attribute):
        return False
    if is_self_attribute(argument):
        return argument.attr in methods_of_node()
    return is_self_attribute(argument.value)


def methods_of_node() -> set[str]:
    return {it.name for it in class_node().body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)}


FIGURES = [
    Figure("modules in the largest folder besides core/ and kit/", largest_folder, 12),
    Figure("modules in core/", lambda: folder_sizes()["core"], 15),
    Figure("modules in kit/", lambda: folder_sizes()["kit"], 13),
    Figure("Node: lines that build it", node_lines, 40),
    Figure("Node: imports of its module", node_imports, 12),
    Figure("Node: attributes", lambda: len(node_attributes()), 12),
    Figure("Node: callbacks that it passes", lambda: len(node_callbacks()), 8),
    Figure("node/: late attach and on_… =", lambda: len(late_wiring()), 0),
    Figure("node/: constructors with more than 6 parameters", lambda: len(wide_constructors()), 2),
    Figure("node/: lines of constructors", lines_of_constructors, 750),
    Figure("fields of Person", lambda: len(fields_of_person()), 7),
    Figure("class names defined twice", lambda: len(classes_defined_twice()), 8),
    Figure("module names in two packages", lambda: len(modules_named_twice()), 6),
    Figure("lines of Python of the server, without the SDK", lines_of_the_server, 32_000),
]

if __name__ == "__main__":
    for figure in FIGURES:
        value = figure.measure()
        print(f"{figure.name:55} {value:7} {'≤' if value <= figure.target else 'above'} {figure.target}")
