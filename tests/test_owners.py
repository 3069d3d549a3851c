"""Each field of a `Person` is written by one package of the node, and by nothing else in the server.

`OWNERS` names the writer of each field. A write is an assignment, an augmented assignment or a deletion whose target ends
in the field, and a call of one of the methods that change the state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.source_tree import MODULES, assert_none, name_of, nodes

from herenow.node.people import Person, RecordState
from herenow.node.people.people import Watchers

PEOPLE = "node/people/"

OWNERS = {
    "record": (
        "known",
        "guessed",
        "stored",
        "presence",
        "store_lacks",
        "pending_edits",
        "dirty",
        "deciding",
        "committing",
        "revision",
    ),
    "watchers": ("channels", "outboxes", "own_view", "published", "changed_at"),
}
"""Part of a person → its fields."""

WRITTEN_BY = {
    "record": "node/records/",
    "watchers": "node/delivery/",
    "held": "node/sessions/",
    "refs": PEOPLE,
    "user": PEOPLE,
    "shard": PEOPLE,
}
"""Part of a person, or field of it → the package that writes it."""

CHANGE_THE_RECORD = {"learn", "adopt"}
"""Methods of `RecordState` that change it."""


def test_each_field_of_a_person_object_is_written_only_by_the_package_that_owns_it():
    assert_none(
        f"{name_of(path)}:{line} writes {what}"
        for path in MODULES
        for line, what, owner in writes(nodes(path))
        if not name_of(path).startswith((WRITTEN_BY[owner], PEOPLE))
    )


def test_every_field_of_a_person_object_has_a_package_that_owns_it():
    assert set(Person.__slots__) == set(WRITTEN_BY)
    assert set(RecordState.__slots__) == set(OWNERS["record"])
    assert set(Watchers.__slots__) == set(OWNERS["watchers"])


def test_a_person_object_accepts_no_fields_besides_the_declared_ones():
    person = Person("ana", 0)
    for part in (person, person.record, person.watchers):
        assert not hasattr(part, "__dict__")


def test_every_package_that_owns_fields_of_a_person_object_writes_them():
    written = {owner for path in MODULES for _, _, owner in writes(nodes(path)) if PEOPLE not in name_of(path)}
    assert written == {"record", "watchers", "held"}


@pytest.mark.parametrize(
    ("source", "owner"),
    [
        ("person.record.dirty = True", "record"),
        ("a, session.person.record.stored = 1, None", "record"),
        ("person.watchers.outboxes += (outbox,)", "watchers"),
        ("person.held = ()", "held"),
        ("del person.watchers.channels", "watchers"),
        ("person.record.adopt(record, presence)", "record"),
        ("person.refs -= 1", "refs"),
    ],
)
def test_the_check_of_field_owners_finds_a_write_to_a_field_of_a_person_object(source, owner):
    assert [found for _, _, found in writes(list(ast.walk(ast.parse(source))))] == [owner]


@pytest.mark.parametrize("source", ["x = person.record.dirty", "self.record = 1", "person.record.is_ours(record)"])
def test_the_check_of_field_owners_ignores_reads_of_a_person_object(source):
    assert not list(writes(list(ast.walk(ast.parse(source)))))


def writes(found: list[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """(line, the expression, the part of the person)."""
    for node in found:
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                flat = [each for target in targets for each in ast.walk(target)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                flat = [target]
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGE_THE_RECORD:
                if is_part(value, "record"):
                    yield node.lineno, ast.unparse(node.func), "record"
                continue
            case _:
                continue
        for each in flat:
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store | ast.Del):
                owner = owner_of(each)
                if owner is not None:
                    yield each.lineno, ast.unparse(each), owner


def owner_of(target: ast.Attribute) -> str | None:
    for part, fields in OWNERS.items():
        if target.attr in fields and is_part(target.value, part):
            return part
    if target.attr in ("held", "refs", "record", "watchers") and is_person(target.value):
        return target.attr
    return None


def is_part(value: ast.expr, part: str) -> bool:
    """`person.record`, or a local name for it."""
    if isinstance(value, ast.Attribute):
        return value.attr == part
    return isinstance(value, ast.Name) and value.id == part


def is_person(value: ast.expr) -> bool:
    return (isinstance(value, ast.Attribute) and value.attr == "person") or (
        isinstance(value, ast.Name) and value.id in ("person", "viewer")
    )
