"""An engine whose calls fail as they do when a store or the network to it fails.

`FaultyEngine` wraps one node's handle on any engine; one `Faults`, shared by all handles, selects the fault for each call.
Faults only withhold, delay, lose or repeat what a real network and a real Redis did; they never invent a response.

    store = MemoryStore(clock=clock.now)
    faults = Faults(seed=7, store=store)
    n1, n2 = (FaultyEngine(MemoryEngine(store), faults, node) for node in ("n1", "n2"))
    faults.on(Rule(Fault.LATE, probability=0.05, calls=("commit",)))
    with faults.during(Rule(Fault.SILENCE, node="n1")):
        ...                                         # n1 is partitioned from the store, n2 is not
    assert faults.taken[Fault.SILENCE]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import TypeVar

from herenow.errors import Unavailable, UnknownOutcome
from herenow.ports import Batch, Committed, Due, Engine, Fenced, Lease, Loaded, LogPart, LogPosition, Offer, Page
from herenow_testing.faults.plan import Call, Fault, Faults, Rule

__all__ = ["Call", "Fault", "Faults", "FaultyEngine", "Rule"]

T = TypeVar("T")

_NO_ANSWER = frozenset({Fault.UNAVAILABLE, Fault.SILENCE, Fault.FROZEN})
_UNKNOWN_OUTCOME = frozenset({Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE})


class FaultyEngine:
    """One node's handle. Blocking reads (`tail`, `receive`) check for faults when they start and when they return."""

    def __init__(self, inner: Engine, faults: Faults, node: str = "") -> None:
        self._inner = inner
        self._faults = faults
        self._node = node
        self._unresponsive: Set[int] = frozenset()

    @property
    def shards(self) -> int:
        return self._inner.shards

    async def check(self) -> None:
        await self._read("check", None, self._inner.check)

    async def open(self, terms: Mapping[str, str]) -> None:
        await self._write("open", None, lambda: self._inner.open(terms))

    async def agree(self, terms: Mapping[str, str]) -> None:
        await self._write("agree", None, lambda: self._inner.agree(terms))

    async def close(self) -> None:
        await self._inner.close()

    # Reads

    async def store_time(self) -> int:
        return await self._read("store_time", None, self._inner.store_time)

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        return await self._read("load", None, lambda: self._inner.load(users))

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        shard = shards[0] if len(shards) == 1 else None
        return await self._read("due", shard, lambda: self._inner.due(shards, now, limit))

    async def walk(self, shard: int, cursor: str | None, limit: int) -> Page:
        return await self._read("walk", shard, lambda: self._inner.walk(shard, cursor, limit))

    async def heads(self) -> dict[int, LogPosition]:
        heads = await self._read("heads", None, self._inner.heads)
        readable = {shard: head for shard, head in heads.items() if not self._is_silent("heads", shard)}
        if not readable:
            raise Unavailable(f"heads: {Fault.SHARD_SILENCE.value}")
        return readable

    async def leases(self) -> list[Lease]:
        return await self._read("leases", None, self._inner.leases)

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]:
        return await self._read("unsaved", shard, lambda: self._inner.unsaved(shard, limit))

    # Reads that wait

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        until = asyncio.get_running_loop().time() + wait
        call = self._call("tail", None, writes=False)
        self._unresponsive = {shard for shard in cursors if self._is_silent("tail", shard)}
        readable = {shard: cursor for shard, cursor in cursors.items() if shard not in self._unresponsive}
        if cursors and not readable:
            raise Unavailable(f"tail: {Fault.SHARD_SILENCE.value}")
        parts = await self._read("tail", None, lambda: self._inner.tail(readable, wait))
        await self._fail_if_cut_off(call)
        if parts and self._faults.strike(call, {Fault.TAIL_SILENCE}):
            await asyncio.sleep(until - asyncio.get_running_loop().time())
            return []
        return parts

    @property
    def unresponsive(self) -> Set[int]:
        return self._inner.unresponsive | self._unresponsive

    def _is_silent(self, name: str, shard: int) -> bool:
        call = self._call(name, shard, writes=False)
        return self._faults.strike(call, {Fault.SHARD_SILENCE}) is not None

    async def receive(self, wait: float) -> list[bytes]:
        call = self._call("receive", None, writes=False)
        messages = await self._read("receive", None, lambda: self._inner.receive(wait))
        await self._fail_if_cut_off(call)
        return [message for message in messages if not self._faults.strike(call, {Fault.MESSAGE_LOST})]

    # Writes

    async def commit(self, batch: Batch) -> Committed | Fenced:
        return await self._write("commit", batch.shard, lambda: self._inner.commit(batch))

    async def offer(self, shard: int, offers: Sequence[Offer], since: int = 0) -> None:
        await self._write("offer", shard, lambda: self._inner.offer(shard, offers, since))

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        return await self._write("join", shard, lambda: self._inner.join(shard, epoch, number))

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        return await self._write("jump", shard, lambda: self._inner.jump(shard, epoch, number))

    async def retire(self, shard: int, epoch: str) -> None:
        await self._write("retire", shard, lambda: self._inner.retire(shard, epoch))

    async def unsettle(self, shard: int, now: int) -> None:
        await self._write("unsettle", shard, lambda: self._inner.unsettle(shard, now))

    async def settle(self, shard: int, now: int, after: int) -> bool:
        return await self._write("settle", shard, lambda: self._inner.settle(shard, now, after))

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        return await self._write("renew", None, lambda: self._inner.renew(lease, begins=begins))

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        return await self._write("mark_dead", None, lambda: self._inner.mark_dead(epoch, counter))

    async def drop_lease(self, epoch: str) -> None:
        await self._write("drop_lease", None, lambda: self._inner.drop_lease(epoch))

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        await self._write("saved", shard, lambda: self._inner.saved(shard, rows))

    async def send(self, message: bytes) -> None:
        if not self._faults.strike(self._call("send", None, writes=True), {Fault.MESSAGE_LOST}):
            await self._write("send", None, lambda: self._inner.send(message))

    # Executing a call with its faults

    def _call(self, name: str, shard: int | None, *, writes: bool) -> Call:
        return Call(name, self._node, shard, writes)

    async def _read(self, name: str, shard: int | None, do: Callable[[], Awaitable[T]]) -> T:
        call = self._call(name, shard, writes=False)
        response_delay = await self._delay_request(call)
        await self._fail_if_cut_off(call)
        answer = await do()
        await _sleep(response_delay)
        return answer

    async def _write(self, name: str, shard: int | None, do: Callable[[], Awaitable[T]]) -> T:
        call = self._call(name, shard, writes=True)
        response_delay = await self._delay_request(call)
        await self._fail_if_cut_off(call, do)
        rule = self._faults.strike(call, _UNKNOWN_OUTCOME)
        if rule is not None:
            await self._apply_unknown_outcome(rule, call, do)
            raise UnknownOutcome(f"{name}: {rule.fault.value}")
        answer = await self._execute(call, do)
        await _sleep(response_delay)
        return answer

    async def _apply_unknown_outcome(self, rule: Rule, call: Call, do: Callable[[], Awaitable[object]]) -> None:
        if rule.fault is Fault.LATE:
            self._faults.postpone(do, self._faults.rng.randint(1, rule.reach))
        elif rule.fault is Fault.EXECUTED:
            await self._execute(call, do)

    async def _execute(self, call: Call, do: Callable[[], Awaitable[T]]) -> T:
        self._faults.before_write(call)
        answer = await do()
        self._faults.after_write(call)
        return answer

    async def _delay_request(self, call: Call) -> float:
        """Wait before a call, if the fault DELAY applies to it, and apply faults of the store itself. Returns the
        seconds by which the response must be delayed."""
        await self._faults.run_ready()
        delay = self._faults.strike(call, {Fault.DELAY})
        there, back = (0.0, 0.0) if delay is None else self._faults.halves(delay.limit)
        await _sleep(there)
        self._faults.before(call)
        return back

    async def _fail_if_cut_off(self, call: Call, do: Callable[[], Awaitable[object]] | None = None) -> None:
        """Raise `Unavailable` or `UnknownOutcome` if a fault keeps the call from the store. `do` executes a write: with
        the fault FROZEN, the store executes it when it runs again."""
        rule = self._faults.strike(call, _NO_ANSWER)
        if rule is None:
            return
        if rule.fault is Fault.UNAVAILABLE:
            raise Unavailable(f"{call.name}: {rule.fault.value}")
        if await self._wait_for_end(rule, do):
            return
        raise (UnknownOutcome if call.writes else Unavailable)(f"{call.name}: {rule.fault.value}")

    async def _wait_for_end(self, rule: Rule, do: Callable[[], Awaitable[object]] | None) -> bool:
        answered = False
        try:
            answered = await self._faults.end_of(rule, rule.limit)
        finally:  # the call timed out: by the rule's limit, or by a shorter deadline of the caller
            if not answered and do is not None and rule.fault is Fault.FROZEN:
                self._faults.postpone(do, rule)
        await self._faults.run_ready()
        return answered


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
