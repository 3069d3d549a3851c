"""Packages import only packages below them, and only each other's faces; one module reads the clock.

`LAYERS` lists the packages from top to bottom; a new package needs a row. Each rule is one test that names all
offenders, and one test with planted offenders that shows that the rule finds them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import pytest
from tests.source_tree import Edge, ancestors, assert_none, edges, imported_modules, lies_in, modules, name_of, nodes

LIBRARIES = "core wire kit settings errors"
"""Packages whose every module is public."""
STORES = f"ports {LIBRARIES}"
IN_NODE = f"node.context node.authority node.outages node.people node.metrics node.deadlines node.user_rate {STORES}"
IN_TRANSPORT = f"node {STORES}"
IN_API = f"workers transport {IN_TRANSPORT}"

LAYERS: Mapping[str, str] = {
    # The composition: settings → stores → node → transport, api.
    "cli.doctor": "cli app *",
    "cli.top": "cli app *",
    "cli": "app *",
    "app": "*",
    "demo": f"api {IN_API}",
    # REST.
    "api": f"api.endpoints api.ops api.description api.http api.request_shapes secret {IN_API}",
    "api.endpoints": f"api.description api.http api.request_shapes {IN_API}",
    "api.ops": f"api.description api.http api.request_shapes {IN_API}",
    "api.description": f"api.http api.request_shapes {IN_API}",
    "api.http": f"api.request_shapes {IN_API}",
    "api.request_shapes": LIBRARIES,
    # WebSockets, event streams, tokens.
    "transport.server": f"transport.session transport.http transport.websocket transport.auth {IN_TRANSPORT}",
    "transport.session": f"transport.http transport.websocket transport.auth {IN_TRANSPORT}",
    "transport.http": f"transport.websocket transport.auth transport.address {IN_TRANSPORT}",
    "transport.websocket": f"transport.address {LIBRARIES}",
    "transport.auth": IN_TRANSPORT,
    "transport.address": LIBRARIES,
    "transport": "",
    # One node: everything it does for its users. It knows no socket, no Redis and no SQL.
    "node": "node.shutdown node.admin node.viewing node.access node.cluster node.sessions node.records node.delivery "
    f"{IN_NODE}",
    "node.shutdown": f"node.cluster node.sessions node.records {IN_NODE}",
    "node.admin": f"node.viewing node.access node.cluster node.sessions node.records node.delivery {IN_NODE}",
    "node.viewing": f"node.access node.cluster node.sessions node.records node.delivery {IN_NODE}",
    "node.access": f"node.cluster node.sessions node.records node.delivery {IN_NODE}",
    "node.cluster": f"node.sessions node.records node.delivery {IN_NODE}",
    "node.sessions": f"node.records node.delivery {IN_NODE}",
    "node.records": f"node.delivery {IN_NODE}",
    "node.delivery": IN_NODE,
    "node.context": f"node.authority node.people node.metrics node.user_rate {STORES}",
    "node.authority": f"node.outages {STORES}",
    "node.outages": STORES,
    "node.people": f"node.metrics {STORES}",
    "node.metrics": STORES,
    "node.deadlines": "",
    "node.user_rate": LIBRARIES,
    # Stores and sources behind the ports: they store and compare, and know no meaning.
    "engines": f"engines.memory engines.redis engines.redis.client {STORES}",
    "engines.memory": STORES,
    "engines.redis": f"engines.redis.client {STORES}",
    "engines.redis.client": "kit errors",
    "ledgers": f"ledgers.sqlite ledgers.postgres ledgers.migrations.versions ledgers.migrations ledgers.sql {STORES}",
    "ledgers.sqlite": f"ledgers.migrations ledgers.sql {STORES}",
    "ledgers.postgres": f"ledgers.migrations ledgers.sql {STORES}",
    "ledgers.migrations.versions": f"ledgers.migrations ledgers.sql {STORES}",
    "ledgers.migrations": f"ledgers.sql {STORES}",
    "ledgers.sql": STORES,
    "relations": f"relations.callback {STORES}",
    "relations.callback": STORES,
    "ports": "core wire errors",
    # The client SDK; processes; modules needed at the start.
    "client": "wire errors",
    "workers": "kit errors",
    "secret": "settings errors",
    "announcement": "settings",
    "logs": "",
    "settings": "kit errors",
    # Libraries.
    "wire": "core errors",
    "core": "",
    "kit": "errors",
    "errors": "",
}
"""Package or module → what it may import. A name includes its contents; `*` means all but `cli` and `app`."""

FACES: Mapping[str, str] = {
    "herenow.workers": "supervisor worker worker_link",
    "herenow.node": (
        "admin viewing access cluster sessions records delivery people context authority outages metrics deadlines"
    ),
    "herenow.transport": "server session http websocket auth address",
    "herenow.api": "application endpoints ops description http request_shapes",
    "herenow.api.endpoints": "beats blocks devices explain presence profiles relation_graph stream user_admin user_settings",
    "herenow.api.http": "cors paths peers problems request request_body responses static_files",
    "herenow.api.description": "audit operations page",
    "herenow.api.ops": "dashboard health sdk stats stats_collect store_errors",
    "herenow.engines": "memory redis",
    "herenow.engines.redis": "client",
    "herenow.ledgers": "migrations postgres sql sqlite",
    "herenow.ledgers.sql": "revisions",
    "herenow.relations": "callback",
}
"""Package → those of its modules and packages that others may import besides its `__init__`."""

WALLED = [name for name in LAYERS if name not in LIBRARIES.split()]
"""Packages whose inside is closed to others. Packages of `LIBRARIES` are lists of public modules."""

COMPOSITION = ("herenow.app", "herenow.cli")
PURE = ("herenow.core", "herenow.wire")
IMPURE = {"asyncio", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "threading", "time"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
MAY_READ_THE_CLOCK = {
    "kit/clock.py",
    "engines/memory/memory_engine.py",
    "client/tokens.py",
}  # the second is its own server with its own time; the third belongs to other processes


# The rules


def test_packages_of_the_server_import_only_packages_of_lower_layers():
    assert_none(upward_imports(edges()))


def test_the_imports_between_packages_of_the_server_have_no_cycle():
    assert_none(" → ".join(cycle) for cycle in cycles(package_graph(edges())))


def test_packages_of_the_server_import_only_the_public_modules_of_other_packages():
    assert_none(inside_imports(edges(), [f"herenow.{name}" for name in WALLED]))


def test_only_the_packages_app_and_cli_import_app_or_cli():
    assert_none(composition_imports(edges()))


def test_the_packages_core_and_wire_import_no_module_for_input_output_time_or_randomness():
    found = {name: nodes(path) for name, path in modules().items() if lies_in_any(name, PURE)}
    assert_none(impure_imports(found))


def test_only_listed_modules_of_the_server_read_the_system_clock():
    asked = {name: path for name, path in modules().items() if not lies_in(name, "herenow.cli")}
    found = {name: nodes(path) for name, path in asked.items() if name_of(path) not in MAY_READ_THE_CLOCK}
    assert_none(f"{name}: {read}" for name, tree in found.items() for read in clock_reads(tree))


def test_the_server_does_not_import_the_testing_tools():
    found = {name: nodes(path) for name, path in modules().items()}
    assert_none(tool_imports(found))


# The tables themselves


def test_every_row_of_the_layer_table_allows_only_imports_from_rows_below_it():
    order = list(LAYERS)
    wrong = [
        f"{name} may import {other}, which is not below it"
        for name, allowed in LAYERS.items()
        for other in allowed.replace("*", "").split()
        if order.index(other) <= order.index(name)
    ]
    assert_none(wrong)


def test_every_row_of_the_layer_tables_names_an_existing_module():
    names = [*LAYERS, *WALLED]
    names += [f"{package}.{name}".removeprefix("herenow.") for package, face in FACES.items() for name in face.split()]
    assert_none(name for name in names if f"herenow.{name}" not in modules())


# Planted offenders


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("herenow.core.status", "herenow.wire.codes"),
        ("herenow.core.status", "herenow.kit.clock"),
        ("herenow.wire.frames", "herenow.node"),
        ("herenow.kit.wheel", "herenow.core.model"),
        ("herenow.engines.redis.engine", "herenow.node.people"),
        ("herenow.engines.redis.client.connection", "herenow.engines.redis.keys"),
        ("herenow.node.records.decider", "herenow.node.sessions.connections"),
        ("herenow.node.delivery.hub", "herenow.node"),
        ("herenow.node.people", "herenow.node.records"),
        ("herenow.node.admin.users", "herenow.transport.server"),
        ("herenow.transport.auth.tokens", "herenow.transport.websocket.registry"),
        ("herenow.transport.websocket.contract", "herenow.transport.http.pipe"),
        ("herenow.api.http.request", "herenow.api.endpoints.beats"),
        ("herenow.api.endpoints.beats", "herenow.app"),
        ("herenow.client.rest", "herenow.settings"),
        ("herenow.a_new_package.module", "herenow.core"),
    ],
)
def test_the_layer_check_finds_an_import_from_a_higher_layer(importer, imported):
    assert list(upward_imports([Edge(importer, imported)]))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("herenow.node.records.decider", "herenow.node.delivery.hub"),
        ("herenow.transport.session", "herenow.node.viewing"),
        ("herenow.cli.doctor.store", "herenow.engines.redis.checks"),
        ("herenow.node", "herenow.node.records"),
        ("herenow.wire.frames", "herenow.wire.codes"),
        ("herenow.api.ops.stats", "herenow"),
    ],
)
def test_the_layer_check_allows_an_import_from_a_lower_layer(importer, imported):
    assert not list(upward_imports([Edge(importer, imported)]))


def test_the_check_for_import_cycles_finds_a_cycle_over_three_packages():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("herenow.app", "herenow.workers.tables"),
        ("herenow.app", "herenow.client.rest"),
        ("herenow.cli.serve", "herenow.cli.doctor.store"),
        ("herenow.api.app", "herenow.client.deep.inside"),
    ],
)
def test_the_check_for_public_modules_finds_an_import_of_an_internal_module(importer, imported):
    walled = ["herenow.workers", "herenow.client", "herenow.cli", "herenow.cli.doctor"]
    assert list(inside_imports([Edge(importer, imported)], walled))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("herenow.app", "herenow.workers.worker_link"),
        ("herenow.app", "herenow.client"),
        ("herenow.client.link", "herenow.client.rest"),
        ("herenow.cli.doctor.store", "herenow.cli.options"),
    ],
)
def test_the_check_for_public_modules_allows_public_modules_and_those_of_the_same_package(importer, imported):
    walled = ["herenow.workers", "herenow.client", "herenow.cli", "herenow.cli.doctor"]
    assert not list(inside_imports([Edge(importer, imported)], walled))


@pytest.mark.parametrize("imported", ["herenow.app", "herenow.cli", "herenow.cli.serve"])
def test_the_check_of_who_imports_app_or_cli_finds_an_import_by_another_package(imported):
    assert list(composition_imports([Edge("herenow.node", imported)]))
    assert not list(composition_imports([Edge("herenow.cli.reap", imported)]))


@pytest.mark.parametrize("source", ["import time", "from os import path", "def f():\n    import asyncio.tasks"])
def test_the_check_that_core_is_pure_finds_an_import_of_time_os_or_asyncio(source):
    assert list(impure_imports({"herenow.core.status": list(ast.walk(ast.parse(source)))}))


@pytest.mark.parametrize("source", ["import herenow_testing", "from herenow_testing.world import World"])
def test_the_check_for_testing_tools_in_the_server_finds_an_import_of_them(source):
    assert list(tool_imports({"herenow.node": list(ast.walk(ast.parse(source)))}))


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
def test_the_check_for_reads_of_the_system_clock_finds_renamed_imports(source):
    assert list(clock_reads(list(ast.walk(ast.parse(source)))))


# Helpers


def upward_imports(found: Iterable[Edge]) -> Iterator[str]:
    for edge in found:
        importer, imported = row_of(edge.importer), row_of(edge.imported)
        if importer is None:
            yield f"{edge.importer} has no row in the table"
        elif not may_import(importer, str(imported)):
            yield str(edge)


def may_import(importer: str, imported: str) -> bool:
    if imported in (importer, "herenow"):
        return True
    allowed = LAYERS[importer].split()
    return lies_in_any(imported, allowed) or ("*" in allowed and not lies_in_any(imported, ("cli", "app")))


def row_of(name: str) -> str | None:
    """The table row of a module: its nearest enclosing package that has one."""
    if name == "herenow":
        return name
    for package in [name, *reversed(ancestors(name))]:
        if package.removeprefix("herenow.") in LAYERS:
            return package.removeprefix("herenow.")
    return None


def package_graph(found: Iterable[Edge]) -> Mapping[str, set[str]]:
    """Rows of the table → rows they import."""
    graph: dict[str, set[str]] = defaultdict(set)
    for edge in found:
        importer, imported = str(row_of(edge.importer)), str(row_of(edge.imported))
        if imported not in (importer, "herenow"):
            graph[importer].add(imported)
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of names that are reachable from each other."""
    reach = {name: reachable(graph, name) for name in graph}
    groups = {tuple(sorted(o for o in reach[name] if name in reach.get(o, ()))) for name in graph}
    return [list(group) for group in sorted(groups) if group]


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    queue = [start]
    while queue:
        new = graph.get(queue.pop(), set()) - found
        found |= new
        queue += new
    return found


def inside_imports(found: Iterable[Edge], walled: Collection[str]) -> Iterator[str]:
    for edge in found:
        for package in ancestors(edge.imported):
            if package in walled and not lies_in(edge.importer, package):
                door = edge.imported.removeprefix(f"{package}.").split(".")[0]
                if door not in FACES.get(package, "").split():
                    yield f"{edge}: use the face of {package}"


def composition_imports(found: Iterable[Edge]) -> Iterator[str]:
    for edge in found:
        if lies_in_any(edge.imported, COMPOSITION) and not lies_in_any(edge.importer, COMPOSITION):
            yield str(edge)


def impure_imports(found: Mapping[str, Iterable[ast.AST]]) -> Iterator[str]:
    for name, tree in found.items():
        yield from (f"{name} imports {it}" for it in imported_modules(tree) if it.split(".")[0] in IMPURE)


def tool_imports(found: Mapping[str, Iterable[ast.AST]]) -> Iterator[str]:
    for name, tree in found.items():
        yield from (f"{name} imports {it}" for it in imported_modules(tree) if lies_in(it, "herenow_testing"))


def lies_in_any(name: str, found: Iterable[str]) -> bool:
    return any(lies_in(name, package) for package in found)


def clock_reads(found: Collection[ast.AST]) -> Iterator[str]:
    time_modules = {"time"}
    for node in found:
        if isinstance(node, ast.Import):
            time_modules |= {alias.asname for alias in node.names if alias.name == "time" and alias.asname}
    for node in found:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        elif isinstance(node, ast.Attribute) and reads_the_clock(node, time_modules):
            yield node.attr


def reads_the_clock(node: ast.Attribute, time_modules: Collection[str]) -> bool:
    owner = ast.unparse(node.value)
    if node.attr in {"now", "utcnow", "today"}:
        return "datetime" in owner.split(".")
    return owner in time_modules and node.attr in CLOCKS
