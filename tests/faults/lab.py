"""A fleet, its clients and random faults in an order given by a seed, with checks and a report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any

import httpx2
from tests.faults.fleet import Fleet, Member
from tests.faults.misfortunes import MISFORTUNES
from tests.faults.people import People
from valkey.exceptions import ValkeyError

from herenow.core.model import Presence, public
from herenow_testing.checker.checker import Checker
from herenow_testing.world.scene import Shown, Witness

PATIENCE = 45.0
"""Seconds to wait for an expected event; an upper limit for hanging runs, not a promise."""

HEALED = 0.5
"""In a long run, the probability that the next fault waits until the system has recovered; otherwise faults may
overlap.
"""

VIEWERS = ["vera", "vito", "vlad"]


class Lab:
    """`offers`: capabilities of this stage that faults may need."""

    def __init__(
        self,
        fleet: Fleet,
        seed: int,
        offers: Iterable[str],
        *,
        store: Any = None,
        store_clock: Any = None,
        group: Any = None,
        database: Any = None,
    ) -> None:
        self.fleet = fleet
        self.database = database
        self.store = store
        self.store_clock = store_clock
        self.left_out: dict[str, str] = {}
        """Faults that cannot happen on this stage, with the reason."""
        self.group = group
        self.seed = seed
        self.dice = Random(f"lab {seed}")
        self.kinds = {name: how for name, (need, how) in MISFORTUNES.items() if need in set(offers)}
        self.checker = Checker(fleet, VIEWERS)
        self.people = People(fleet, self.checker, seed, [f"u{number}" for number in range(8)], VIEWERS)
        self.nobody = Witness()
        self.proofs: dict[str, list[str]] = {}
        self.agreed_after = 0.0
        """Longest time in seconds from the end of a fault until every view was right, without time in which the machine
        was busy.
        """
        self.waited = 0.0
        """Longest part of such a time in which the machine was busy."""
        self.stalls = 0
        """How often recovery took longer because the machine itself stalled, so that the time was counted from the end
        of the stall.
        """
        self._differ: list[str] = []
        self.numbers = count()
        """Numbers for values that must be new each time."""
        self.blocked: set[str] = set()
        """Users whose block was acknowledged."""

    async def run(self, minutes: float = 0) -> list[str]:
        """Run each fault once; then, until `minutes` are over, random ones. Returns the problems found."""
        await self.fleet.befriend(*VIEWERS, *self.people.users)
        self.people.start()
        loop = asyncio.get_running_loop()
        measuring = loop.create_task(self.fleet.machine.watch())
        looking, blocking = loop.create_task(self._look_around()), loop.create_task(self._block())
        until = time.monotonic() + minutes * 60
        try:
            await asyncio.sleep(4)
            for name in self.dice.sample(sorted(self.kinds), len(self.kinds)):
                await self._happen(name, heal=True)
            while time.monotonic() < until:
                await self._happen(self.dice.choice(sorted(self.kinds)), heal=self.dice.random() < HEALED)
            await self._calm_down()
            await self.fleet.look()
            await self.checker.conclude()
            await self._conclude_blocks()
            for task in (measuring, looking, blocking):
                if task.done():  # only the blocking task ends, and without an error
                    task.result()
            assert not looking.done()
        finally:
            measuring.cancel()
            looking.cancel()
            blocking.cancel()
            await self.people.stop()
        return self.checker.problems

    async def _happen(self, name: str, *, heal: bool) -> None:
        self.people.note(f"— {name}")
        await self.kinds[name](self, self.dice)
        self.people.note(f"— {name} is over")
        if heal:
            await self._heal()
        await asyncio.sleep(self.dice.uniform(1, 2))

    async def _heal(self) -> None:
        """Wait until every view is right again; taking too long is a problem."""
        unhealed, differed = self.checker.unhealed, list[str]()
        ended = max([trouble.end or 0 for trouble in unhealed], default=self.fleet.now)
        while not await self._agree():
            took = self._took(self.fleet.machine.stalled(ended))
            differed = self._differ
            assert took < PATIENCE * 1000, f"not healed: {differed}"
            await asyncio.sleep(0.1)
        kinds = " and ".join(trouble.kind for trouble in unhealed)
        took, waited = self._took(ended), self.fleet.lateness(ended, self.fleet.now)
        allowed = self.checker.bounds.agreed(lost=any(trouble.loses for trouble in unhealed))
        if took > allowed and (stalled := self.fleet.machine.stalled(ended)) > ended:
            self.stalls += 1
            took = self._took(stalled)
        self.people.note(f"— agreed {took} ms after {kinds}, and {waited} ms for which the machine was busy")
        self.agreed_after = max(self.agreed_after, took / 1000)
        self.waited = max(self.waited, waited / 1000)
        if took > allowed:
            self.checker.problems.append(
                f"{self.fleet.now} late: not all views were right within {allowed} ms after {kinds}, "
                f"but after {took}; before that: {differed}"
            )
        self.checker.all_right()

    def _took(self, since: int) -> int:
        """Milliseconds since `since`, without time in which the machine was busy."""
        return max(0, self.fleet.now - since - self.fleet.lateness(since, self.fleet.now))

    async def _calm_down(self) -> None:
        self.people.over = True
        self.people.note("— calm")
        began = self.fleet.now
        await self._heal()
        await asyncio.sleep(self.checker.bounds.late / 1000)
        self.checker.healed()
        while self.fleet.now < self.checker.quiet_at + self.fleet.lateness(began, self.fleet.now) + 2_000:
            await asyncio.sleep(0.2)

    async def _agree(self) -> bool:
        """True if every node answers what the store has, without stale marks, and the viewers see the same and true
        statuses.
        """
        self._differ = [*await self._nodes_differ()]
        self._differ += self._differ or self.checker.differences()
        return not self._differ

    async def _nodes_differ(self) -> list[str]:
        if not await self.fleet.look():
            return ["the store cannot be read"]
        before = self.fleet.everybody_stored()
        nodes = list(self.fleet.nodes.values())
        answers = await asyncio.gather(
            *(node.answers(VIEWERS[0], self.people.users) for node in nodes), return_exceptions=True
        )
        if not await self.fleet.look():
            return ["the store cannot be read"]
        after = self.fleet.everybody_stored()
        found = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, BaseException):
                found.append(f"{node.name} does not answer: {answer!r}")
                continue
            for told in answer:
                # A user whose record changed during the comparison cannot be judged.
                if told.stale or (before.get(told.user) == after.get(told.user) and not says(told, after)):
                    found.append(f"{node.name} answers {told}, the store has {after.get(told.user)}")
        return found

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(1)
            async with asyncio.timeout(PATIENCE):
                readable = await self.fleet.look()
            if readable:
                self.checker.look_around()

    async def _block(self) -> None:
        """A user without viewers blocks one user after another throughout the run."""
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
                continue  # the write may have been executed
            self.blocked.add(f"b{number}")

    async def _conclude_blocks(self) -> None:
        for node in self.fleet.nodes.values():
            told = await node.ask("GET", "/blocks", "blocker")
            for lost in sorted(self.blocked - set(told["blocked"])):
                self.checker.problems.append(f"differs: {node.name} does not know of the block of {lost}")

    # For faults

    def somebody(self, dice: Random) -> Member:
        return dice.choice(self.fleet.up())

    @contextmanager
    def trouble(self, kind: str, member: Member | None = None, **what: bool) -> Iterator[None]:
        """`what`: see `Trouble`."""
        trouble = self.checker.trouble(kind, None if member is None else member.name, **what)
        try:
            yield
        finally:
            self.checker.over(trouble)

    def prove(self, kind: str, what: str) -> None:
        self.people.note(f"— {kind}: {what}")
        self.proofs.setdefault(kind, []).append(what)

    async def total(self, metric: str) -> float:
        """Sum of a metric over all nodes."""
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

    # Results

    def report(self) -> dict[str, object]:
        counts = self.checker.counts
        return {
            "seed": self.seed,
            "misfortunes": sum(map(len, self.proofs.values())),
            "kinds": len(self.proofs),
            "changes checked": counts["shown"],
            "views looked at": counts["looked"],
            "last seen compared": counts["last seen"],
            "choices compared": counts["choices"],
            "blocks kept": len(self.blocked),
            "longest ghost, s": round(self.checker.longest_ghost / 1000, 1),
            "longest until all views were right again, s": round(self.agreed_after, 1),
            "beside that, the machine was busy for up to, s": round(self.waited, 1),
            "times that it was counted from a stall of the machine": self.stalls,
            **{f"left out: {name}": why for name, why in self.left_out.items()},
            "problems": len(self.checker.problems),
        }


def says(told: Shown, stored: dict[str, Presence]) -> bool:
    view = public(stored.get(told.user, Presence()))
    text = None if view.custom is None else view.custom.text
    return (told.status, told.custom) == (view.status.word, text)


def wrongs(lab: Lab) -> list[str]:
    """Problems found, faults without effect, and unexpected complaints of nodes."""
    problems = list(lab.checker.problems)
    problems += [f"a task of the lab died: {each}" for each in lab.fleet.died]
    if len(lab.blocked) < len(lab.kinds):
        problems.append(f"only {len(lab.blocked)} blocks were made")
    problems += [f"{name} did not take effect" for name in lab.kinds if name not in lab.proofs]
    for name, member in lab.fleet.members.items():
        log = (member.folder / "log").read_text()
        for word in ("Traceback", "task.died", "decide.failed"):
            if word in log:
                at = log.index(word)
                problems.append(f"{name} says: {log[max(0, at - 500) : at + 2000]}")
    return problems
