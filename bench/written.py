"""Results as files: JSON for each and, where there is something to draw, a picture; and one page with all tables.

The page is generated from the JSON files in the folder, so that a run of one scenario keeps the lines of the others.
"""

from __future__ import annotations

from pathlib import Path

from bench.plot import drawable, svg
from bench.report import Result, load, save, spread

PAGE = "README.md"
HEAD = """# Results

Made by `./dev bench --save`, by hand never. What each scenario does is told in [bench](../README.md). Figures are medians,
with the lowest and the highest where there were repeats; a ratio is herenow's median by the other's.
"""


def write(result: Result, machine: dict[str, str], folder: Path) -> Path:
    """Writes this result and the page again. Returns the path of the figures."""
    path = save(result, machine, folder)
    picture = folder / f"{result.scenario}.svg"
    if drawable(result):
        picture.write_text(svg(result, _conditions(result, machine)))
    else:
        picture.unlink(missing_ok=True)
    (folder / PAGE).write_text(page(folder))
    return path


def page(folder: Path) -> str:
    sections = [_section(*load(path), folder) for path in sorted(folder.glob("*.json"))]
    return "\n".join([HEAD, *sections])


def _section(result: Result, machine: dict[str, str], folder: Path) -> str:
    lines = [
        f"## {result.scenario}",
        "",
        f"{_conditions(result, machine)}.",
        "",
        f"| figure | unit | herenow | {result.against} | ratio | aim | met |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for figure in result.figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        met = {True: "yes", False: "**no**", None: ""}[figure.met]
        lines.append(
            f"| {figure.name} | {figure.unit} | {spread(figure.ours)} | {spread(figure.bare)} | {ratio} "
            f"| {figure.aim} | {met} |"
        )
    lines.append("")
    if (folder / f"{result.scenario}.svg").exists():
        lines += [f"![{result.scenario}]({result.scenario}.svg)", ""]
    lines += [f"- {_one_line(note)}" for note in result.notes]
    if result.load_share is not None:
        lines.append(f"- the load used {result.load_share:.2f} of its core over all")
    return "\n".join([*lines, ""])


def _conditions(result: Result, machine: dict[str, str]) -> str:
    told = [
        machine["at"],
        machine["cpu"],
        f"cores {machine['cores']}",
        f"Linux {machine['kernel']}",
        f"Python {machine['python']}",
        f"load average at the start {machine['load_average']}",
    ]
    return ", ".join([*told, *([result.conditions] if result.conditions else [])])


def _one_line(said: str) -> str:
    return " ".join(said.split())
