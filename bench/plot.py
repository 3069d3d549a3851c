"""A result as a picture: bars for compared figures, lines for growth. Plain SVG.

Each group of bars has one unit and begins at zero, so that lengths are comparable; the number is at the end of its bar.
"""

from __future__ import annotations

import statistics
from html import escape
from itertools import groupby

from bench.report import Figure, Line, Result, number

WIDTH = 960
LEFT = 400
"""Where bars begin; names end before it."""
BAR = 16
GAP = 6
COLOURS = ("#2f6f4f", "#b9b4a7", "#7a5c99", "#c2703d", "#3d7ac2", "#a33b4b")
"""herenow first."""
PLOT = 260
MARGIN = 70


def svg(result: Result, caption: str) -> str:
    """The whole picture; a figure without a comparison is only in the table."""
    parts: list[str] = []
    top = 76
    for unit, figures in groupby(_barred(result), key=lambda figure: figure.unit):
        drawn, height = _bars(unit, list(figures), result.against, top)
        parts += drawn
        top += height
    for (x_unit, unit), lines in groupby(result.lines, key=lambda line: (line.x_unit, line.unit)):
        parts += _lines(x_unit, unit, list(lines), top)
        top += PLOT + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" '
        'font-family="sans-serif" font-size="13">'
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>'
        + _text(16, 26, result.scenario, size=18)
        + _text(16, 44, caption, fill="#666", size=11)
    )
    return "\n".join([head, *parts, "</svg>\n"])


def drawable(result: Result) -> bool:
    return bool(result.lines or _barred(result))


def _barred(result: Result) -> list[Figure]:
    beside = [figure for figure in result.figures if figure.ours and figure.bare]
    return sorted(beside, key=lambda figure: figure.unit)


def _bars(unit: str, figures: list[Figure], against: str, top: int) -> tuple[list[str], int]:
    values = [(figure, statistics.median(figure.ours), statistics.median(figure.bare)) for figure in figures]
    most = max(max(ours, theirs) for _, ours, theirs in values) or 1.0
    scale = (WIDTH - LEFT - 110) / most
    parts = [
        _text(LEFT, top, f"{unit}:"),
        _text(LEFT + 150, top, "■ herenow", fill=COLOURS[0]),
        _text(LEFT + 240, top, f"■ {against}", fill="#8a8577"),
    ]
    y = top + 12
    for figure, ours, theirs in values:
        parts.append(_text(LEFT - 10, y + BAR + 4, figure.name, anchor="end"))
        for colour, value in ((COLOURS[0], ours), (COLOURS[1], theirs)):
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{max(1.0, value * scale):.1f}" height="{BAR}" fill="{colour}"/>'
            )
            parts.append(_text(LEFT + value * scale + 6, y + BAR - 4, number(value), size=11))
            y += BAR
        y += GAP
    return parts, y - top + 24


def _lines(x_unit: str, unit: str, lines: list[Line], top: int) -> list[str]:
    xs = sorted({x for line in lines for x, _ in line.points})
    most = max((y for line in lines for _, y in line.points), default=1.0) or 1.0
    width, bottom = WIDTH - 2 * MARGIN - 200, top + PLOT
    place = {x: MARGIN + width * at / max(1, len(xs) - 1) for at, x in enumerate(xs)}
    """Evenly spaced: doublings look like doublings."""
    parts = [
        f'<path d="M{MARGIN} {top}V{bottom}H{MARGIN + width}" fill="none" stroke="#999"/>',
        _text(MARGIN - 8, top + 8, number(most), anchor="end", size=11),
        _text(MARGIN - 8, bottom, "0", anchor="end", size=11),
        _text(MARGIN, top - 6, unit),
        _text(MARGIN + width, bottom + 34, x_unit, anchor="end"),
        *(_text(place[x], bottom + 16, _place(x), anchor="middle", size=11) for x in xs),
    ]
    for at, line in enumerate(lines):
        colour = COLOURS[(at * 2 + at // 3) % len(COLOURS)]
        spots = [(place[x], bottom - (PLOT - 10) * y / most) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        parts.append(_text(MARGIN + width + 16, top + 16 + 18 * at, f"— {line.name}", fill=colour, size=12))
    return parts


def _place(x: float) -> str:
    return f"{x:.0f}" if x == round(x) else number(x)


def _text(x: float, y: float, said: str, *, anchor: str = "start", fill: str = "#222", size: int = 13) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{escape(said)}</text>'
    )
