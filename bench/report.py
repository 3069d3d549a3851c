"""Measured figures of both sides, their ratio, and whether the target is met."""

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
    """One line: all repeats of herenow and, if there is a comparison, of the bare listener."""

    name: str
    unit: str
    ours: Sequence[float]
    bare: Sequence[float] = field(default_factory=list)
    at_least: float | None = None
    """Target for the ratio of the medians, herenow to bare."""
    at_most: float | None = None
    """Upper target for our worst repeat, in `unit`."""
    no_less: float | None = None
    """Lower target for our worst repeat."""
    less_is_better: bool = False
    """Whether a lower ratio is better."""

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ours) / statistics.median(self.bare) if self.ours and self.bare else None

    @property
    def aim(self) -> str:
        if self.at_least is not None:
            return f"ratio ≥ {self.at_least:g}"
        if self.no_less is not None:
            return f"≥ {self.no_less:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def met(self) -> bool | None:
        """None: no target."""
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
    """How the figures were measured, and why the load did not limit them."""
    against: str = "bare picows"
    """The other side of the comparison."""
    conditions: str = ""
    """Of the run: repeats, quick or not, and other load of the machine."""
    load_share: float | None = None
    """Share of the load's core, from the first process started to the last one stopped."""
    lines: list[Line] = field(default_factory=list)
    """Series for a plot."""


@dataclass
class Line:
    """One series of a plot."""

    name: str
    x_unit: str
    unit: str
    points: list[tuple[float, float]]


def show(result: Result, console: Console) -> None:
    table = Table(title=result.scenario, title_justify="left", title_style="bold")
    for column in ("figure", "unit"):
        table.add_column(column)
    for column in ("herenow", result.against, "ratio", "aim", "met"):
        table.add_column(column, justify="right")
    for figure in result.figures:
        table.add_row(
            figure.name,
            figure.unit,
            spread(figure.ours),
            spread(figure.bare),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.aim,
            {True: "yes", False: "NO", None: ""}[figure.met],
        )
    console.print(table)
    for note in result.notes:
        console.print(f"  {note}", highlight=False, markup=False)
    if result.load_share is not None:
        console.print(f"  the load used {result.load_share:.2f} of its core over all", highlight=False)


def save(result: Result, machine: dict[str, str], folder: Path) -> Path:
    """Writes the figures as JSON, from which `bench.written` makes the table and the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.scenario}.json"
    figures = [asdict(figure) | {"ratio": figure.ratio, "met": figure.met} for figure in result.figures]
    content = asdict(result) | {"machine": machine, "figures": figures}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def load(path: Path) -> tuple[Result, dict[str, str]]:
    """A saved result, and the machine it was measured on."""
    content = json.loads(path.read_text())
    machine = content.pop("machine")
    figures = [
        Figure(**{name: value for name, value in each.items() if name not in ("ratio", "met")})
        for each in content.pop("figures")
    ]
    lines = [Line(**{**each, "points": [(x, y) for x, y in each["points"]]}) for each in content.pop("lines", [])]
    return Result(figures=figures, lines=lines, **content), machine


def spread(repeats: Sequence[float]) -> str:
    """The median, and the minimum and maximum of several."""
    if not repeats:
        return ""
    median = number(statistics.median(repeats))
    return median if len(repeats) == 1 else f"{median} ({number(min(repeats))}–{number(max(repeats))})"


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
