"""`python -m bench [SCENARIO]...`: all of them, or those named."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import click
from rich.console import Console

from bench import (
    arrive,
    beats,
    fan_out,
    idle,
    last_seen,
    ledger_down,
    lookup,
    machine,
    memory,
    nodes,
    redis,
    storm,
    twins,
    visibility,
)
from bench.effort import Effort
from bench.report import Result, save, show

SCENARIOS: dict[str, Callable[[Effort], Result]] = {
    "beats": beats.run,
    "memory": memory.run,
    "fan-out": fan_out.run,
    "storm": storm.run,
    "lookup": lookup.run,
    "idle": idle.run,
    "arrive": arrive.run,
    "visibility": visibility.run,
    "twins": twins.run,
    "redis": redis.run,
    "nodes": nodes.run,
    "last-seen": last_seen.run,
    "ledger-down": ledger_down.run,
}


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--quick", is_flag=True, help="One repeat with fewer people: does it work, and roughly where are we?"
)
@click.option(
    "--repeats", type=click.IntRange(1, 20), default=3, show_default=True, help="Of every measurement."
)
@click.option("--large", is_flag=True, help="Also five million people in Redis: 5 GB and some minutes.")
@click.option("--save", "keep", is_flag=True, help="Write bench/results/SCENARIO.json.")
def main(scenarios: tuple[str, ...], *, quick: bool, repeats: int, large: bool, keep: bool) -> None:
    """Measure a node beside a bare picows listener: the server on one core, the load on another."""
    console = Console(width=None if os.isatty(1) else 130)
    cores = machine.cores()
    if cores.shared:
        console.print("There is one core for server and load: the figures below say little.", style="bold")
    machine.raise_descriptor_limit()
    machine.pin(os.getpid(), cores.load)
    console.print(
        ", ".join(f"{name} {value}" for name, value in machine.described().items()), highlight=False
    )
    effort = Effort(repeats=1 if quick else repeats, quick=quick, large=large)
    for name in scenarios or SCENARIOS:
        started = time.monotonic()
        result = SCENARIOS[name](effort)
        console.print()
        show(result, console)
        console.print(f"  took {time.monotonic() - started:.0f} s", highlight=False)
        if keep:
            console.print(f"  written to {save(result, machine.described())}", highlight=False)


if __name__ == "__main__":
    main()
