"""A finding of `herenow doctor`: one sentence about one subject, and its severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Weight(Enum):
    """The severity of a finding; the value is its printed label and colour."""

    FINE = ("ok", "green")
    ADVICE = ("advice", "yellow")
    PROBLEM = ("problem", "red")


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    weight: Weight
    sentence: str


def fine(subject: str, sentence: str) -> Finding:
    return Finding(subject, Weight.FINE, sentence)


def advice(subject: str, sentence: str) -> Finding:
    return Finding(subject, Weight.ADVICE, sentence)


def problem(subject: str, sentence: str) -> Finding:
    return Finding(subject, Weight.PROBLEM, sentence)
