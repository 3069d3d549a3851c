"""`python -m bench [SCENARIO]...`: runs all scenarios, or the named ones."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from bench import (
    abuse,
    arrive,
    beats,
    city,
    deploy,
    fan_out,
    growth,
    idle,
    last_seen,
    ledger_down,
    load_alone,
    lookup,
    losses,
    machine,
    many,
    memory,
    nodes,
    overload,
    popular,
    redis,
    redis_huge,
    storm,
    traffic,
    twins,
    visibility,
)
from bench.effort import Effort
from bench.guard import compared, guarded, tolerance
from bench.load import share
from bench.peers import PEERS, chosen
from bench.peers.peer import Peer
from bench.peers.work import WORKS, beside
from bench.report import RESULTS, Result, show
from bench.written import write

SCENARIOS: dict[str, Callable[[Effort], Result]] = {
    "beats": beats.run,
    "memory": memory.run,
    "fan-out": fan_out.run,
    "storm": storm.run,
    "lookup": lookup.run,
    "idle": idle.run,
    "arrive": arrive.run,
    "visibility": visibility.run,
    "popular": popular.run,
    "overload": overload.run,
    "abuse": abuse.run,
    "twins": twins.run,
    "redis": redis.run,
    "nodes": nodes.run,
    "last-seen": last_seen.run,
    "ledger-down": ledger_down.run,
    "deploy": deploy.run,
    "growth": growth.run,
    "city": city.run,
    "traffic": traffic.run,
    "load": load_alone.run,
    "many": many.run,
    "losses": losses.run,
}

QUICK = ("load", "beats", "fan-out", "storm", "arrive", "lookup", "traffic")
"""Scenarios of a quick run without names: the most informative ones within five minutes."""

MINUTE = 60.0
LAST = RESULTS / "last"
"""Folder of runs that are not kept."""


def _peers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[Peer] | None:
    try:
        return None if value is None else chosen(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--quick", is_flag=True, help="One repeat with fewer people: does it work, and roughly where are we?")
@click.option(
    "--peer",
    "peers",
    callback=_peers,
    help=f"Also by others, in {', '.join(WORKS)}: {', '.join(PEERS)}, several with commas, quick or all.",
)
@click.option("--repeats", type=click.IntRange(1, 20), default=3, show_default=True, help="Of every measurement.")
@click.option("--large", is_flag=True, help="Also five million people in Redis: 5 GB and some minutes.")
@click.option(
    "--huge",
    is_flag=True,
    help="After `redis` also fifty million people, as a result of their own: 5 GB and half an hour.",
)
@click.option("--limit", type=click.IntRange(1), default=15, show_default=True, help="Minutes a scenario may take.")
@click.option("--save", "keep", is_flag=True, help="Write to bench/results instead of bench/results/last.")
@click.option("--guard", is_flag=True, help="Compare ratios with the committed ones; exit 1 if one is worse.")
def main(
    scenarios: tuple[str, ...],
    *,
    quick: bool,
    peers: list[Peer] | None,
    repeats: int,
    large: bool,
    huge: bool,
    limit: int,
    keep: bool,
    guard: bool,
) -> None:
    """Measure a node beside a bare picows listener and beside others: the server on one core, the load on another."""
    if quick and (keep or guard):
        raise click.UsageError("a quick run is neither kept nor compared with those that are")
    effort = Effort(repeats=1 if quick else repeats, quick=quick, large=large)
    if quick and not scenarios and peers is None:
        peers = chosen("quick")
    if not scenarios:
        scenarios = QUICK if quick else tuple(guarded(RESULTS) if guard else SCENARIOS)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(143))  # so that started processes are stopped
    run = Run(effort, limit * MINUTE, RESULTS if keep else LAST)
    run.begin()
    for name in scenarios:
        run.measure(name, partial(SCENARIOS[name], effort), guard=guard)
        if peers and name in WORKS:
            run.measure(f"{name}-peers", partial(beside, name, peers, effort), guard=guard)
        if huge and name == "redis":
            run.measure("redis-huge", partial(redis_huge.run, effort), guard=guard, minutes=redis_huge.MINUTES)
    sys.exit(run.end(guard=guard))


class Run:
    """Runs scenarios one after the other. A failing scenario does not affect the others."""

    def __init__(self, effort: Effort, limit: float, folder: Path) -> None:
        self._console = Console(width=None if os.isatty(1) else 130)
        self._effort, self._limit, self._folder = effort, limit, folder
        self._failed: list[str] = []
        self._compared = 0
        self._worse: list[str] = []

    def begin(self) -> None:
        cores = machine.cores()
        if cores.shared:
            self._console.print("There is one core for server and load: the figures below say little.", style="bold")
        machine.raise_descriptor_limit()
        machine.pin(os.getpid(), cores.load)
        self._say(", ".join(f"{name} {value}" for name, value in machine.described().items()))

    def measure(self, name: str, work: Callable[[], Result], *, guard: bool, minutes: int = 0) -> None:
        """`minutes`: a minimum for the time limit of this scenario."""
        started, described = time.monotonic(), machine.described()
        try:
            with _within(max(self._limit, minutes * MINUTE)), share() as load:
                result = work()
        except Exception as error:  # noqa: BLE001  whatever spoils one scenario, the others are measured
            self._failed.append(name)
            self._say(f"\n{name} was not measured:\n{''.join(traceback.format_exception(error))}")
            return
        result.load_share = load.used
        result.conditions = self._effort.described
        self._console.print()
        show(result, self._console)
        self._say(f"  took {time.monotonic() - started:.0f} s")
        self._say(f"  written to {write(result, described, self._folder)}")
        if guard:
            self._compare(result)

    def end(self, *, guard: bool) -> int:
        """The exit code of the process."""
        if self._failed:
            self._say(f"\nNot measured: {', '.join(self._failed)}")
        if guard:
            self._say(f"\n{self._compared} ratios compared, {len(self._worse)} of them worse")
            for verdict in self._worse:
                self._say(verdict)
        return int(bool(self._failed or self._worse or (guard and not self._compared)))

    def _compare(self, result: Result) -> None:
        for verdict in compared(result, RESULTS):
            self._compared += 1
            self._say(f"  {verdict} (tolerance {tolerance(result.scenario):.0%})")
            if not verdict.fine:
                self._worse.append(str(verdict))

    def _say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises after `seconds`: a scenario that hangs ends like one that fails, and stops the processes it started."""

    def late(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"it took more than {seconds / 60:g} minutes")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
