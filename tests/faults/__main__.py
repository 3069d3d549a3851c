"""`./dev chaos`: run the fault bench for a given time. Prints a report, and the trace if a check failed."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import click
from tests.faults.lab import wrongs
from tests.faults.stages import STAGES


@click.command()
@click.option("--minutes", type=float, default=10, show_default=True, help="How long each stage lasts.")
@click.option("--seed", type=int, help="Which story; without one, a new one.")
@click.option("--stage", "stages", multiple=True, type=click.Choice(list(STAGES)), help="Only there.")
@click.option("--only", multiple=True, help="Only these misfortunes.")
@click.option("--story", is_flag=True, help="Tell it also where nothing was wrong.")
def main(minutes: float, seed: int | None, stages: tuple[str, ...], only: tuple[str, ...], *, story: bool) -> None:
    seed = random.randrange(1_000_000) if seed is None else seed
    wrong = False
    for stage in stages or STAGES:
        wrong |= asyncio.run(_run(stage, minutes, seed, only, story=story))
    sys.exit(1 if wrong else 0)


async def _run(stage: str, minutes: float, seed: int, only: tuple[str, ...], *, story: bool) -> bool:
    click.echo(f"{stage}, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="herenow-faults-") as folder:
        async with STAGES[stage](Path(folder), seed) as lab:
            if only:
                lab.kinds = {name: how for name, how in lab.kinds.items() if name in only}
            try:
                await lab.run(minutes)
            except Exception as error:  # noqa: BLE001 - whatever it was is told
                lab.checker.problems.append(f"the run itself failed: {error!r}")
            problems = wrongs(lab)
            if problems or story:
                click.echo("\n".join([*lab.people.trace, *problems]))
            for name, proofs in sorted(lab.proofs.items()):
                click.echo(f"  {len(proofs):3d} × {name}: {proofs[-1]}")
            for name, value in lab.report().items():
                click.echo(f"  {name}: {value}")
            return bool(problems)


if __name__ == "__main__":
    main()
