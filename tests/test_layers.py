"""Higher layers import lower ones, never back; and one module reads the clock.

The table below is the line. A new package needs a row: think where it belongs before writing one.
"""

import ast
import functools
from pathlib import Path

import pytest

import herenow

ROOT = Path(herenow.__file__).parent
EVERYTHING = None

MAY_IMPORT = {
    "__init__": set(),
    "errors": set(),
    "core": set(),
    "ports": {"core", "errors"},
    "wire": {"core", "ports", "errors"},
    "engines": {"core", "ports", "errors"},
    "ledgers": {"core", "ports", "errors"},
    "relations": {"core", "wire", "ports", "errors"},
    "service": {"core", "wire", "ports", "errors"},
    "settings": {"errors"},
    "secret": {"settings", "errors"},
    "gateway": {"service", "wire", "core", "ports", "settings", "secret", "errors"},
    "api": {"gateway", "service", "wire", "core", "ports", "settings", "secret", "workers", "errors"},
    "client": {"wire", "errors"},
    "announcement": {"settings"},
    "workers": {"errors"},
    "logs": set(),
    "demo": {"api", "gateway", "service", "wire", "core", "ports", "errors"},
    "app": EVERYTHING,
    "cli": EVERYTHING,
    "testing": EVERYTHING,
}

IMPURE = {"asyncio", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "threading", "time"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
MAY_READ_THE_CLOCK = {
    "kit/clock.py",
    "engines/memory/memory_engine.py",
    "client/tokens.py",
}  # the second is its own server, with its own time; the third belongs to other processes

MODULES = sorted(path for path in ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]
each_module = pytest.mark.parametrize("path", MODULES, ids=NAMES)


@each_module
def test_a_module_imports_only_what_lies_below_it(path):
    layer = layer_of(path)
    assert layer in MAY_IMPORT, f"{layer} has no row in the table"
    allowed = MAY_IMPORT[layer]
    for imported in herenow_layers(path) - {layer}:
        assert allowed is EVERYTHING or imported in allowed, f"{layer} must not import {imported}"


@each_module
def test_nothing_but_tests_imports_the_testing_tools(path):
    if layer_of(path) != "testing":
        assert "testing" not in herenow_layers(path)


@each_module
def test_only_app_and_cli_know_the_composition(path):
    if layer_of(path) not in {"app", "cli", "testing"}:
        assert not {"app", "cli"} & herenow_layers(path)


@each_module
def test_the_core_and_the_wire_are_pure(path):
    if layer_of(path) in {"core", "wire"}:
        assert not {name.split(".")[0] for name in imports(path)} & IMPURE


@each_module
def test_one_module_reads_the_clock(path):
    name = str(path.relative_to(ROOT))
    if name not in MAY_READ_THE_CLOCK and layer_of(path) != "cli":
        assert not list(clock_reads(path))


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic_ns()",
        "from time import monotonic",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
    ],
)
def test_the_clock_rule_finds_a_hidden_reading(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(clock_reads(path))


def layer_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def herenow_layers(path):
    parts = [name.split(".") for name in imports(path)]
    return {
        part[1] for part in parts if part[0] == "herenow" and len(part) > 1 and not part[1].startswith("__")
    }


def imports(path):
    """Dotted names; `from herenow import ports` counts as `herenow.ports`."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def nodes(path):
    """Of its syntax tree, which five tests of each module look at."""
    return list(ast.walk(ast.parse(path.read_text())))


def clock_reads(path):
    modules = {"time"}
    for node in nodes(path):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == "time" and alias.asname}
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        elif isinstance(node, ast.Attribute) and reads_the_clock(node, modules):
            yield node.attr


def reads_the_clock(node, time_modules):
    owner = ast.unparse(node.value)
    if node.attr in {"now", "utcnow", "today"}:
        return "datetime" in owner.split(".")
    return owner in time_modules and node.attr in CLOCKS
