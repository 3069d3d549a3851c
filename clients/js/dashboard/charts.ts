/**
 * Line charts over time, drawn by uPlot. The right edge is always the current time: without data from the server the lines
 * end and move to the left, so that old data does not look live.
 */
import uPlot from "/dashboard/uplot.js";

import { at, make, say } from "./elements.js";
import { columns, type Column, type Key } from "./series.js";
import type { Point } from "./stats.js";
import { clock, short } from "./words.js";

export interface Line {
  key: Key;
  label: string;
  /** The name of a CSS variable. */
  colour: string;
  dash?: number[];
}

export interface Kind {
  id: string;
  lines: Line[];
  say: (value: number | null) => string;
  /** The smallest maximum of the y axis, so that noise does not fill the chart. */
  least: number;
  scale?: number;
}

const HEIGHT = 180;

export class Chart {
  private readonly plot: uPlot;
  private readonly place: HTMLElement;
  private readonly values: HTMLElement[];

  constructor(private readonly kind: Kind) {
    this.place = at(kind.id);
    this.values = kind.lines.map(() => make("b"));
    at(`${kind.id}-legend`).replaceChildren(
      ...kind.lines.map((line, index) => {
        const mark = make("i");
        mark.style.setProperty("--line", `var(${line.colour})`);
        mark.classList.toggle("dashed", line.dash !== undefined);
        return make("li", {}, mark, `${line.label} `, this.values[index]!);
      }),
    );
    this.plot = new uPlot(this.options(), [[], ...kind.lines.map((): number[] => [])], this.place);
    new ResizeObserver(() => this.fit()).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot.redraw(false, true));
  }

  /** `now` is in epoch milliseconds, `span` in milliseconds. */
  draw(points: readonly Point[], now: number, span: number): void {
    const [times, ...values] = columns(points, this.kind.lines.map((line) => line.key));
    this.plot.setData([times, ...values.map((column) => this.scaled(column))], false);
    this.plot.setScale("x", { min: (now - span) / 1000, max: now / 1000 });
    const newest = points.at(-1);
    this.kind.lines.forEach((line, index) => say(this.values[index]!, this.kind.say(newest === undefined ? null : newest[line.key])));
  }

  private fit(): void {
    const width = this.place.clientWidth;
    if (width > 0) this.plot.setSize({ width, height: HEIGHT });
  }

  private scaled(column: Column): Column {
    const by = this.kind.scale ?? 1;
    return by === 1 ? column : column.map((value) => (value === null ? null : value * by));
  }

  private options(): uPlot.Options {
    const grid = { stroke: () => paint("--line"), width: 1 };
    const axis = { stroke: () => paint("--soft"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
    return {
      width: Math.max(this.place.clientWidth, 200),
      height: HEIGHT,
      padding: [8, 4, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(this.kind.least, (high ?? 0) * 1.1)] } },
      axes: [
        { ...axis, grid: { show: false }, space: 48, size: 22, values: (_plot, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, tick % 60 ? 8 : 5)) },
        { ...axis, size: 46, space: 34, values: (_plot, ticks) => ticks.map(short) },
      ],
      series: [
        {},
        ...this.kind.lines.map((line, index) => ({
          label: line.label,
          stroke: () => paint(line.colour),
          fill: index === 0 ? () => paint(line.colour, 0.1) : undefined,
          width: 1.75,
          dash: line.dash,
          points: { show: false },
          spanGaps: false,
        })) as uPlot.Series[],
      ],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    };
  }

  /** Show the values at the pointer in the legend; without a pointer, the last ones. */
  private point(index: number | null | undefined): void {
    const data = this.plot.data;
    const shown = index ?? data[0].length - 1;
    this.kind.lines.forEach((_line, line) => {
      const value = data[line + 1]?.[shown] ?? null;
      say(this.values[line]!, this.kind.say(value === null ? null : value / (this.kind.scale ?? 1)));
    });
  }
}

function paint(variable: string, opacity = 1): string {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  return opacity === 1 ? colour : `${colour}${Math.round(opacity * 255).toString(16).padStart(2, "0")}`;
}
