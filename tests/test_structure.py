"""Folders, constructors and names stay within their targets (`python -m tests.structure` prints the figures)."""

from __future__ import annotations

import ast

import pytest
from tests import structure
from tests.structure import FIGURES

HELD = {
    "modules in the largest folder besides core/ and kit/",
    "modules in core/",
    "modules in kit/",
    "Node: lines that build it",
    "Node: imports of its module",
    "Node: attributes",
    "Node: callbacks that it passes",
    "node/: late attach and on_… =",
    "node/: constructors with more than 6 parameters",
    "node/: lines of constructors",
    "fields of Person",
    "class names defined twice",
    "module names in two packages",
}
"""Figures that have reached their target."""


@pytest.mark.parametrize("figure", [it for it in FIGURES if it.name in HELD], ids=lambda it: it.name)
def test_a_code_structure_metric_that_reached_its_target_stays_within_it(figure):
    assert figure.measure() <= figure.target


def test_every_code_structure_metric_that_must_stay_within_its_target_is_measured():
    assert {figure.name for figure in FIGURES} >= HELD


def test_code_structure_metrics_count_the_parameters_of_a_constructor_without_self():
    [function] = parsed("def __init__(self, a, /, b, *more, c=1, **rest): ...").body
    assert structure.parameters(function) == 5


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Part(lambda: 1)", ["lambda: 1"]),
        ("Part(on=self.part.verb)", ["self.part.verb"]),
        ("Part(settings.grace, self.part, 5)", []),
        ("self.part.on_gone = self.other.leave", ["self.other.leave"]),
    ],
)
def test_code_structure_metrics_count_lambdas_and_methods_passed_to_other_objects_as_callbacks(source, found):
    function = parsed(f"def __init__(self):\n    {source}").body[0]
    handed = [*structure.arguments_of(function), *structure.late_values_of(function)]
    assert [ast.unparse(value) for value in handed if structure.is_callback(value)] == found


@pytest.mark.parametrize(
    ("source", "late"), [("part.on_gone", True), ("self.on_gone", False), ("self.part.on_gone", True), ("x.one", False)]
)
def test_code_structure_metrics_count_callbacks_assigned_to_another_object_after_its_construction(source, late):
    assert structure.is_late(parsed(source).body[0].value) == late


def test_code_structure_metrics_count_the_attributes_that_a_constructor_assigns():
    function = parsed("def __init__(self):\n    self.a, self.b = 1, 2\n    self.c: int = 3\n    other.d = self.e").body[
        0
    ]
    assert sorted(structure.assigned_attributes(function)) == ["a", "b", "c"]


def parsed(source):
    return ast.parse(source)
