"""Every output goes through one projection: no other code reads the shown fields of a presence.

`core.visibility` alone decides what may be shown (`seen`, `seen_by_oneself`, `status_in_public`, `may_hear_typing`).
Code outside the core that reads a shown field or a raw view could show something hidden. The few exceptions are listed
here with their reason; a new one needs a decision.
"""

import ast
import functools

import pytest
from tests.source_tree import MODULES, assert_none, name_of, tree

RAW_VIEWS = {"public", "truth", "own", "devices", "choice_of", "choices"}
SHOWN = {"status", "since", "last_seen", "custom", "platforms", "sessions", "mode", "mode_until", "sources", "hidden"}

MAY_LOOK = {
    # Storing: written, offered and woken up, never shown.
    ("node/people/local_session.py", "sessions"),  # is the held session in the record?
    ("node/people/record_state.py", "last_seen"),  # does the store lack a newer value?
    ("node/records/steps.py", "sessions"),  # which held sessions were committed
    ("node/records/decision.py", "last_seen"),  # write again what the store lacks
    ("node/records/decision.py", "sessions"),  # must other nodes learn of it by the log?
    ("node/records/decision.py", "mode"),  # a user who hid since is not seen later
    ("node/records/late_choices.py", "hidden"),  # a user who hides is published at once
    ("node/records/late_choices.py", "mode"),  # does the user come back?
    ("node/records/last_seen/run_markers.py", "hidden"),  # no marker while hidden
    ("node/records/last_seen/uncommitted_ends.py", "mode"),  # no last seen while invisible
    ("node/records/ledger_writer.py", "hidden"),  # did the user hide or come back?
    ("node/records/ledger_writer.py", "last_seen"),  # the ledger keeps the public value
    ("node/records/ledger_writer.py", "sessions"),  # a run's stamp: last sign of life of visible users
    ("node/records/ledger_writer.py", "mode"),
    ("node/records/ledger_writer.py", "mode_until"),
    ("node/records/ledger_writer.py", "custom"),
    ("node/records/ledger_writer.py", "sources"),
    ("node/cluster/shard_recovery.py", "last_seen"),
    ("node/sessions/connections.py", "sessions"),
    ("node/sessions/rest_beats.py", "sessions"),  # does another node have the device's socket?
    ("node/admin/users.py", "last_seen"),  # is anything left of a deleted user?
    ("node/cluster/dead_nodes.py", "sessions"),
    # The name of the rule in an explanation; services only.
    ("node/admin/explain.py", "mode"),
}

MAY_TAKE = {
    ("api/endpoints/user_settings.py", "choice_of")  # the choice of one source, returned to the source that made it
}

OUTSIDE = [path for path in MODULES if name_of(path).split("/")[0] not in ("core", "demo")]


def test_only_the_visibility_module_calls_functions_that_show_unfiltered_statuses():
    found = {(name_of(path), view) for path in OUTSIDE for view in raw_views(tree(path))}
    assert_none(f"{name} takes {view}" for name, view in found - MAY_TAKE)
    assert_none(f"{name} does not take {view}" for name, view in MAY_TAKE - found)


def test_only_the_visibility_module_and_listed_exceptions_read_the_shown_fields_of_a_presence():
    assert_none(f"{name} reads {field}" for name, field in looks() - MAY_LOOK)


def test_every_listed_exception_that_reads_shown_fields_of_a_presence_is_still_needed():
    assert_none(f"{name} does not read {field}" for name, field in MAY_LOOK - looks())


@pytest.mark.parametrize(
    "leak",
    [
        "def exit(person):\n    return person.record.presence.status",
        "def exit(presence):\n    return presence.last_seen",
        "def exit(person):\n    found = person.record.presence\n    return found.platforms",
        "def exit(reader):\n    [(it, _)] = records.read(['a'])\n    return it.custom",
        "def exit(x: Presence):\n    return x.since",
    ],
)
def test_the_check_for_privacy_leaks_finds_code_that_reads_a_shown_field_of_a_presence(leak):
    assert list(looked_at(ast.parse(leak)))


@pytest.mark.parametrize(
    "leak",
    [
        "from herenow.core.model import truth",
        "from herenow.core.model import View, public as shown",
        "from herenow.core import model\nmodel.own(presence)",
        "from herenow.core.sources import choices",
    ],
)
def test_the_check_for_privacy_leaks_finds_an_import_of_an_unfiltered_status_function(leak):
    assert list(raw_views(ast.parse(leak)))


@functools.cache
def looks():
    return {(name_of(path), field) for path in OUTSIDE for field in looked_at(tree(path))}


def raw_views(source):
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and node.module in ("herenow.core.model", "herenow.core.sources"):
            yield from (alias.name for alias in node.names if alias.name in RAW_VIEWS)
        elif isinstance(node, ast.Attribute) and node.attr in RAW_VIEWS and ast.unparse(node.value) == "model":
            yield node.attr


def looked_at(source):
    """Shown fields read from a presence, recognised by name, annotation or origin."""
    for function in ast.walk(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            names = {"presence"} | presences(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in SHOWN and is_presence(node.value, names):
                    yield node.attr


def is_presence(value, names):
    if isinstance(value, ast.Name):
        return value.id in names
    return isinstance(value, ast.Attribute) and value.attr == "presence"


def presences(function):
    """Names in this function that hold a presence."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).split(" ")[0] in ("Presence", "'Presence'"):
                found.add(node.arg)
        elif isinstance(node, ast.Assign) and gives_presences(node.value):
            for target in node.targets:
                found |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found


def gives_presences(value):
    if isinstance(value, ast.Attribute):
        return value.attr == "presence"
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in {"read", "wait_decided", "apply", "presence"}
    return isinstance(value, ast.Call) and ast.unparse(value.func) in {"decode", "Presence"}
