"""What `herenow doctor` finds: one sentence about one subject, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Weight(Enum):
    """How bad a finding is: its mark and its colour."""

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
