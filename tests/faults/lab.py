"""A fleet, its people, and everything that goes wrong, in an order that a seed decides; and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import httpx2
from tests.faults.fleet import Fleet, Member
from tests.faults.misfortunes import MISFORTUNES
from tests.faults.people import People
from valkey.exceptions import ValkeyError

from herenow.testing.checker import Checker
from herenow.testing.scene import Witness

PATIENCE = 45.0
"""Seconds to wait for what must come: not a promise, only an end to waiting."""

HEALED = 0.5
"""How often the next misfortune waits until the last one is healed; otherwise they may meet."""

VIEWERS = ["vera", "vito", "vlad"]


class Lab:
    """`offers`: what there is for misfortunes to happen to."""

    def __init__(
        self,
        fleet: Fleet,
        seed: int,
        offers: Iterable[str],
        *,
        store: Any = None,
        group: Any = None,
        database: Any = None,
    ) -> None:
        self.fleet = fleet
        self.database = database
        self.store = store
        self.group = group
        self.seed = seed
        self.dice = Random(f"lab {seed}")
        self.kinds = {name: how for name, (need, how) in MISFORTUNES.items() if need in set(offers)}
        self.checker = Checker(fleet, VIEWERS)
        self.people = People(fleet, self.checker, seed, [f"u{number}" for number in range(8)], VIEWERS)
        self.nobody = Witness()
        self.proofs: dict[str, list[str]] = {}
        self.agreed_after = 0.0
        """Seconds from the end of a misfortune until every node said the same again: the longest."""
        self.blocked: set[str] = set()
        """Whom somebody blocked, and was told that it is done."""

    async def run(self, minutes: float = 0) -> list[str]:
        """Each kind once; then, until the minutes are over, any of them. Answers what was wrong."""
        await self.fleet.befriend(*VIEWERS, *self.people.users)
        self.people.start()
        loop = asyncio.get_running_loop()
        looking, blocking = loop.create_task(self._look_around()), loop.create_task(self._block())
        until = time.monotonic() + minutes * 60
        try:
            await asyncio.sleep(4)
            for name in self.dice.sample(sorted(self.kinds), len(self.kinds)):
                await self._happen(name)
            while time.monotonic() < until:
                await self._happen(self.dice.choice(sorted(self.kinds)), heal=self.dice.random() < HEALED)
            await self._calm_down()
            await self.fleet.look()
            await self.checker.conclude()
            await self._conclude_blocks()
            assert not looking.done(), f"nobody looks any more: {looking!r}"
        finally:
            looking.cancel()
            blocking.cancel()
            await self.people.stop()
        return self.checker.problems

    async def _happen(self, name: str, *, heal: bool = False) -> None:
        self.people.note(f"— {name}")
        await self.kinds[name](self, self.dice)
        self.people.note(f"— {name} is over")
        if heal:
            await self._heal()
        await asyncio.sleep(self.dice.uniform(1, 4))

    async def _heal(self) -> float:
        """Until all nodes agree; answers how many seconds that took."""
        began = time.monotonic()
        await self.until(self._agree)
        took = time.monotonic() - began
        self.people.note(f"— agreed after {took:.1f} s")
        self.agreed_after = max(self.agreed_after, took)
        return took

    async def _calm_down(self) -> None:
        bounds = self.checker.bounds
        self.people.over = True
        self.people.note("— calm")
        await asyncio.sleep(max(0.0, bounds.healed / 1000 - await self._heal()))
        self.checker.healed()
        await asyncio.sleep((bounds.longest + 3_000) / 1000)

    async def _agree(self) -> bool:
        """Does every node answer every viewer what the store says, without a doubt?"""
        if not await self.fleet.look():
            return False
        try:
            answers = [
                await node.answers(VIEWERS[0], self.people.users) for node in self.fleet.nodes.values()
            ]
        except httpx2.HTTPError:
            return False
        told = [[(each.user, each.status, each.custom) for each in one] for one in answers]
        return all(one == told[0] for one in told) and not any(each.stale for one in answers for each in one)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(1)
            async with asyncio.timeout(PATIENCE):
                readable = await self.fleet.look()
            if readable:
                self.checker.look_around()

    async def _block(self) -> None:
        """Somebody whom nobody watches blocks one person after another, whatever happens."""
        dice, number = Random(f"blocks {self.seed}"), 0
        while not self.people.over:
            await asyncio.sleep(dice.uniform(0.2, 1))
            number += 1
            node = self.people.some_node(dice)
            if node is None:
                continue
            try:
                await node.ask("PUT", f"/blocks/b{number}", "blocker")
            except httpx2.HTTPError:
                continue  # it may be done all the same
            self.blocked.add(f"b{number}")

    async def _conclude_blocks(self) -> None:
        for node in self.fleet.nodes.values():
            told = await node.ask("GET", "/blocks", "blocker")
            for lost in sorted(self.blocked - set(told["blocked"])):
                self.checker.problems.append(f"differs: {node.name} does not know of the block of {lost}")

    # For misfortunes

    def somebody(self, dice: Random) -> Member:
        return dice.choice(self.fleet.up())

    @contextmanager
    def trouble(self, kind: str, member: Member | None = None) -> Iterator[None]:
        trouble = self.checker.trouble(kind, None if member is None else member.name)
        try:
            yield
        finally:
            self.checker.over(trouble)

    def prove(self, kind: str, what: str) -> None:
        self.people.note(f"— {kind}: {what}")
        self.proofs.setdefault(kind, []).append(what)

    async def total(self, metric: str) -> float:
        """Over all nodes."""
        return sum([(await member.metrics()).get(metric, 0) for member in self.fleet.up()])

    async def total_above(self, metric: str, before: float) -> bool:
        try:
            return await self.total(metric) > before
        except httpx2.HTTPError:
            return False

    async def is_settled(self) -> bool:
        return await self.total("herenow_stale_shards") == 0

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if await true():
                        return
                except (httpx2.HTTPError, OSError, ValkeyError):
                    pass
                await asyncio.sleep(0.2)

    # Afterwards

    def report(self) -> dict[str, object]:
        counts = self.checker.counts
        return {
            "seed": self.seed,
            "misfortunes": sum(map(len, self.proofs.values())),
            "kinds": len(self.proofs),
            "changes checked": counts["shown"],
            "views looked at": counts["looked"],
            "blocks kept": len(self.blocked),
            "longest ghost, s": round(self.checker.longest_ghost / 1000, 1),
            "longest until all agreed again, s": round(self.agreed_after, 1),
            "problems": len(self.checker.problems),
        }


def wrongs(lab: Lab) -> list[str]:
    """What was wrong, what did not take effect, and what nodes complained of that should not happen."""
    problems = list(lab.checker.problems)
    problems += [f"{name} did not take effect" for name in lab.kinds if name not in lab.proofs]
    for name, member in lab.fleet.members.items():
        log = (member.folder / "log").read_text()
        for word in ("Traceback", "task.died", "decide.failed"):
            if word in log:
                at = log.index(word)
                problems.append(f"{name} says: {log[max(0, at - 500) : at + 2000]}")
    return problems
