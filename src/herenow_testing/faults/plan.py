"""The plan of faults: rules that select which calls fail, and how.

A rule names a fault and where it applies: node, calls, time window of the event loop, probability, maximum number. One
`Faults` is shared by all handles on a store. It uses one seeded random generator, so that runs can be repeated, and counts
the faults that took effect, so that a test can assert that they happened. `faulty_engine` applies a fault to a call; data
loss in the store itself is done here.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Protocol

from herenow.errors import HerenowError
from herenow.kit.notifier import Notifier


class Fault(Enum):
    EXECUTED = "a write is executed, then UnknownOutcome"
    NOT_EXECUTED = "a write is not executed, then UnknownOutcome"
    LATE = "UnknownOutcome at once; the write is executed after some other calls"
    UNAVAILABLE = "Unavailable at once; nothing happened"
    SILENCE = "the network is cut: no answer until the fault ends, or an error at the call's limit; nothing happened"
    FROZEN = "the store stands still: as SILENCE, but writes given up at their limit are executed when it goes on"
    DELAY = "the call takes a while, and others overtake it"
    TAIL_SILENCE = "tail finds nothing, whatever there is"
    SHARD_SILENCE = "tail and heads cannot read the log of a shard, and say so"
    MESSAGE_LOST = "a direct message does not arrive: to anybody (send), or at this handle (receive)"
    ROLLBACK = "acknowledged writes of a shard are lost, fence rows included"
    EMPTY = "a shard is empty"
    LOG_GAP = "a write's log entries, and all before them, are trimmed away before anybody reads them"


ON_THE_STORE = frozenset({Fault.ROLLBACK, Fault.EMPTY})
ON_WRITES = frozenset({Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE, Fault.LOG_GAP})
ON_MESSAGES = frozenset({Fault.MESSAGE_LOST})
ON_LOGS = {Fault.TAIL_SILENCE: ("tail",), Fault.SHARD_SILENCE: ("tail", "heads")}


@dataclass(frozen=True, eq=False)
class Rule:
    """Selects the calls that a fault applies to. A field left at its default does not restrict them."""

    fault: Fault
    probability: float = 1.0
    """Per call that matches the other fields."""
    begin: float = -math.inf
    end: float = math.inf
    """The window [begin, end) of the event loop's time, in seconds."""
    node: str | None = None
    """Only calls of this node's handle; None: of all handles."""
    calls: tuple[str, ...] = ()
    """Only these methods of the port; empty: all."""
    shard: int | None = None
    """Only calls for exactly this shard; None: all."""
    times: float = math.inf
    """Maximum number of calls that fail."""
    limit: float = 1.0
    """Seconds. SILENCE, FROZEN: the deadline of a call. DELAY: the longest delay."""
    reach: int = 8
    """LATE: the most other calls that are executed first. ROLLBACK: the most writes that are lost."""
    whole: bool = False
    """ROLLBACK, EMPTY: affect the whole store with leases and terms, not only the shard of the call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the port, with the properties that rules can match."""

    name: str
    node: str
    shard: int | None
    writes: bool


class StoreFaults(Protocol):
    """Methods that a store must have for ROLLBACK, EMPTY and LOG_GAP. `shard=None` means the whole store."""

    def snapshot(self, shard: int | None) -> object: ...

    def restore(self, shard: int | None, snapshot: object) -> None: ...

    def empty(self, shard: int | None) -> None: ...

    def trim_log(self, shard: int, keep: int) -> None: ...


@dataclass(eq=False)
class _Late:
    do: Callable[[], Awaitable[object]]
    after: Rule | int


@dataclass
class _Past:
    """Snapshots of a shard (or of everything), oldest first."""

    snapshots: deque[object] = field(default_factory=deque)

    def keep(self, snapshot: object, most: int) -> None:
        self.snapshots.append(snapshot)
        while len(self.snapshots) > most:
            self.snapshots.popleft()

    def back(self, steps: int) -> object:
        for _ in range(steps - 1):
            self.snapshots.pop()
        return self.snapshots.pop()


class Faults:
    """The active rules, the random generator and the counters. `on`, `off` and `during` switch rules by hand."""

    def __init__(self, seed: int = 0, plan: Iterable[Rule] = (), *, store: StoreFaults | None = None) -> None:
        self.rng = Random(seed)
        self.taken: Counter[Fault] = Counter()
        self._store = store
        self._rules: list[Rule] = list(plan)
        self._taken_by_rule: Counter[Rule] = Counter()
        self._switched = Notifier()
        self._past: dict[int | None, _Past] = {}
        self._underway: list[_Late] = []

    # Switching

    def on(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def off(self, rule: Rule) -> None:
        self._rules.remove(rule)
        self._switched.notify()

    @contextmanager
    def during(self, *rules: Rule) -> Iterator[None]:
        for rule in rules:
            self.on(rule)
        try:
            yield
        finally:
            for rule in rules:
                self.off(rule)

    # Matching calls

    def strike(self, call: Call, among: Collection[Fault]) -> Rule | None:
        """Return the first rule with a fault in `among` that applies to the call, and count it; None if there is none.
        A rule with a probability below 1 applies at random."""
        for rule in self._rules:
            if rule.fault in among and self._fits(rule, call) and self._dice(rule):
                return self._take(rule)
        return None

    def in_force(self, rule: Rule) -> bool:
        return rule in self._rules and rule.begin <= _loop_time() < rule.end

    async def end_of(self, rule: Rule, limit: float) -> bool:
        """Wait until the rule is no longer active; False if that takes longer than `limit` seconds."""
        give_up = _loop_time() + limit
        while self.in_force(rule):
            if _loop_time() >= give_up:
                return False
            await self._switched.wait(min(rule.end, give_up))
        return True

    def _fits(self, rule: Rule, call: Call) -> bool:
        return (
            self.in_force(rule)
            and self._taken_by_rule[rule] < rule.times
            and rule.node in (None, call.node)
            and rule.shard in (None, call.shard)
            and (not rule.calls or call.name in rule.calls)
            and _concerns(rule, call)
        )

    def halves(self, limit: float) -> tuple[float, float]:
        """Return two random delays in seconds, before a call is executed and after it; their sum is at most `limit`."""
        return self.rng.uniform(0, limit / 2), self.rng.uniform(0, limit / 2)

    def _dice(self, rule: Rule) -> bool:
        return rule.probability >= 1 or self.rng.random() < rule.probability

    def _take(self, rule: Rule) -> Rule:
        self.taken[rule.fault] += 1
        self._taken_by_rule[rule] += 1
        return rule

    # Writes that are executed after their caller got an error

    def postpone(self, do: Callable[[], Awaitable[object]], after: Rule | int) -> None:
        """Execute the write `do` later: after `after` other calls of any node, or, if `after` is a rule, when that rule
        is no longer active."""
        self._underway.append(_Late(do, after))

    async def run_ready(self) -> None:
        """Execute the postponed writes that have waited long enough. The engine calls this before every call."""
        if self._underway:
            await self._run([late for late in self._underway if self._is_ready(late)])

    async def run_late(self) -> None:
        """Execute all postponed writes now."""
        await self._run(self._underway)

    def _is_ready(self, late: _Late) -> bool:
        if isinstance(late.after, Rule):
            return not self.in_force(late.after)
        late.after -= 1
        return late.after < 0

    async def _run(self, ready: list[_Late]) -> None:
        self._underway = [late for late in self._underway if late not in ready]
        for late in ready:
            with suppress(HerenowError):  # the caller already got an error
                await late.do()

    # Data loss in the store: by a rule around a call, or by hand

    def before(self, call: Call) -> None:
        for rule in self._rules:
            if rule.fault in ON_THE_STORE:
                self._lose(rule, call)

    def before_write(self, call: Call) -> None:
        for rule in self._rules:
            if rule.fault is Fault.ROLLBACK and rule.shard in (None, call.shard) and _concerns(rule, call):
                self.remember(_place(rule, call), most=rule.reach)

    def after_write(self, call: Call) -> None:
        if call.shard is not None and self._store is not None and self.strike(call, {Fault.LOG_GAP}):
            self._store.trim_log(call.shard, 0)

    def remember(self, shard: int | None = None, most: int = 8) -> None:
        """Keep a snapshot of a shard (None: the whole store), to which `roll_back` can return. Only the last `most`
        snapshots are kept."""
        self._past.setdefault(shard, _Past()).keep(self._lossy.snapshot(shard), most)

    def roll_back(self, shard: int | None = None, steps: int = 1) -> None:
        """Restore a shard (None: the whole store) from its last snapshot, or from the `steps`th last one."""
        self.taken[Fault.ROLLBACK] += 1
        self._lossy.restore(shard, self._past[shard].back(steps))

    def replica(self) -> Callable[[], None]:
        """Take a snapshot of the whole store. Returns a function that restores it, like a fail-over to an old
        replica."""
        past = self._lossy.snapshot(None)

        def take_over() -> None:
            self.taken[Fault.ROLLBACK] += 1
            self._lossy.restore(None, past)

        return take_over

    def empty(self, shard: int | None = None) -> None:
        self.taken[Fault.EMPTY] += 1
        self._lossy.empty(shard)

    def cut_log(self, shard: int, keep: int = 0) -> None:
        self.taken[Fault.LOG_GAP] += 1
        self._lossy.trim_log(shard, keep)

    def _lose(self, rule: Rule, call: Call) -> None:
        place = _place(rule, call)
        depth = len(self._past[place].snapshots) if place in self._past else 0
        if rule.fault is Fault.ROLLBACK and not depth:
            return
        if not (self._fits(rule, call) and self._dice(rule)):
            return
        self._taken_by_rule[rule] += 1
        if rule.fault is Fault.ROLLBACK:
            self.roll_back(place, self.rng.randint(1, depth))
        else:
            self.empty(place)

    @property
    def _lossy(self) -> StoreFaults:
        assert self._store is not None, "Faults(store=...) is needed for faults of the store itself"
        return self._store


def _concerns(rule: Rule, call: Call) -> bool:
    """True if this kind of fault can apply to this kind of call."""
    if rule.fault in ON_THE_STORE:
        return rule.whole or call.shard is not None
    if rule.fault in ON_WRITES:
        return call.writes
    if rule.fault in ON_LOGS:
        return call.name in ON_LOGS[rule.fault]
    return rule.fault not in ON_MESSAGES or call.name in ("send", "receive")


def _place(rule: Rule, call: Call) -> int | None:
    return None if rule.whole else call.shard


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
