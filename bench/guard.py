"""Compares the ratios of a new run with the committed ones; times depend on the machine, ratios hardly.

A ratio may be worse than the committed one by the tolerance of its scenario, which covers the noise of a shared machine
on two sides that do not run at the same moment. Run by hand before a release: it takes minutes and an idle machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.report import Result

TOLERANCES = {"beats": 0.15, "fan-out": 0.15, "memory": 0.10, "storm": 0.25, "arrive": 0.25}
"""Share of the committed ratio that may be lost."""

OF_PEERS = 0.30
"""For two different servers, measured one after the other."""


@dataclass(frozen=True)
class Verdict:
    figure: str
    now: float
    committed: float
    allowed: float
    fine: bool

    def __str__(self) -> str:
        word = "fine" if self.fine else "WORSE"
        return (
            f"{word}: {self.figure}: ratio {self.now:.3g}, committed {self.committed:.3g}, allowed {self.allowed:.3g}"
        )


def tolerance(scenario: str) -> float | None:
    """None: this scenario is not compared."""
    return OF_PEERS if scenario.endswith("-peers") else TOLERANCES.get(scenario)


def compared(result: Result, folder: Path) -> Iterator[Verdict]:
    """A verdict for every figure that has a ratio in both results."""
    path, tolerated = folder / f"{result.scenario}.json", tolerance(result.scenario)
    if tolerated is None or not path.exists():
        return
    committed = {each["name"]: each for each in json.loads(path.read_text())["figures"]}
    for figure in result.figures:
        before = committed.get(figure.name, {}).get("ratio")
        if figure.ratio is None or before is None:
            continue
        allowed = before * (1 + tolerated if figure.less_is_better else 1 - tolerated)
        fine = figure.ratio <= allowed if figure.less_is_better else figure.ratio >= allowed
        yield Verdict(f"{result.scenario}, {figure.name}", figure.ratio, before, allowed, fine)


def guarded(folder: Path) -> list[str]:
    """Scenarios with committed ratios, without those of peers."""
    return [name for name in TOLERANCES if (folder / f"{name}.json").exists()]
