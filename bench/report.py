"""What was measured: figures of both sides, their ratio, and whether the aim is met."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass
class Figure:
    """One line: all repeats of ours and, if there is something to compare with, of the bare listener's."""

    name: str
    unit: str
    ours: Sequence[float]
    bare: Sequence[float] = ()
    at_least: float | None = None
    """An aim for the ratio of the medians, ours to bare."""
    at_most: float | None = None
    """An aim for our worst repeat, in `unit`."""
    no_less: float | None = None
    """The same from below."""

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ours) / statistics.median(self.bare) if self.bare else None

    @property
    def aim(self) -> str:
        if self.at_least is not None:
            return f"ratio ≥ {self.at_least:g}"
        if self.no_less is not None:
            return f"≥ {self.no_less:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """None: nothing was aimed at."""
        if self.at_least is not None:
            return self.ratio is not None and self.ratio >= self.at_least
        if self.no_less is not None:
            return min(self.ours) >= self.no_less
        return None if self.at_most is None else max(self.ours) <= self.at_most


@dataclass
class Result:
    scenario: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """How the figures came about, and how one knows that the load was not what was measured."""


def show(result: Result, console: Console) -> None:
    table = Table(title=result.scenario, title_justify="left", title_style="bold")
    for column in ("figure", "unit"):
        table.add_column(column)
    for column in ("herenow", "bare picows", "ratio", "aim", "met"):
        table.add_column(column, justify="right")
    for figure in result.figures:
        table.add_row(
            figure.name,
            figure.unit,
            _spread(figure.ours),
            _spread(figure.bare),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.aim,
            {True: "yes", False: "NO", None: ""}[figure.met],
        )
    console.print(table)
    for note in result.notes:
        console.print(f"  {note}", highlight=False)


def save(result: Result, machine: dict[str, str]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{result.scenario}.json"
    figures = [asdict(figure) | {"ratio": figure.ratio, "met": figure.met} for figure in result.figures]
    content = {"scenario": result.scenario, "machine": machine, "figures": figures, "notes": result.notes}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def _spread(repeats: Sequence[float]) -> str:
    """The median, and the lowest and highest of several."""
    if not repeats:
        return ""
    median = _number(statistics.median(repeats))
    return median if len(repeats) == 1 else f"{median} ({_number(min(repeats))}–{_number(max(repeats))})"


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
