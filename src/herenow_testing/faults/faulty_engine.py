"""What happens to a call when the store, or the way to it, fails?

`FaultyEngine` wraps one node's handle on any engine; `Faults` (shared by all handles) says which fault strikes which
call. A fault never invents an answer: it withholds, delays, loses or repeats nothing but what a real network and a real
Redis were seen to. It knows the port and nothing of what is stored.

    store = MemoryStore(clock=clock.now)
    faults = Faults(seed=7, store=store)
    n1, n2 = (FaultyEngine(MemoryEngine(store), faults, node) for node in ("n1", "n2"))
    faults.on(Rule(Fault.LATE, probability=0.05, calls=("commit",)))
    with faults.during(Rule(Fault.SILENCE, node="n1")):
        ...                                         # n1 is cut off, n2 is not
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
_DOUBT = frozenset({Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE})


class FaultyEngine:
    """One node's handle. Calls that wait (`tail`, `receive`) meet the faults when they start and when they answer."""

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
        heard = {shard: head for shard, head in heads.items() if not self._is_silent("heads", shard)}
        if not heard:
            raise Unavailable(f"heads: {Fault.SHARD_SILENCE.value}")
        return heard

    async def leases(self) -> list[Lease]:
        return await self._read("leases", None, self._inner.leases)

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]:
        return await self._read("unsaved", shard, lambda: self._inner.unsaved(shard, limit))

    # Reads that wait

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        until = asyncio.get_running_loop().time() + wait
        call = self._call("tail", None, writes=False)
        self._unresponsive = {shard for shard in cursors if self._is_silent("tail", shard)}
        heard = {shard: cursor for shard, cursor in cursors.items() if shard not in self._unresponsive}
        if cursors and not heard:
            raise Unavailable(f"tail: {Fault.SHARD_SILENCE.value}")
        parts = await self._read("tail", None, lambda: self._inner.tail(heard, wait))
        await self._reach(call)
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
        await self._reach(call)
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

    # The way of a call

    def _call(self, name: str, shard: int | None, *, writes: bool) -> Call:
        return Call(name, self._node, shard, writes)

    async def _read(self, name: str, shard: int | None, do: Callable[[], Awaitable[T]]) -> T:
        call = self._call(name, shard, writes=False)
        way_back = await self._set_out(call)
        await self._reach(call)
        answer = await do()
        await _take(way_back)
        return answer

    async def _write(self, name: str, shard: int | None, do: Callable[[], Awaitable[T]]) -> T:
        call = self._call(name, shard, writes=True)
        way_back = await self._set_out(call)
        await self._reach(call, do)
        doubt = self._faults.strike(call, _DOUBT)
        if doubt is not None:
            await self._doubt(doubt, call, do)
            raise UnknownOutcome(f"{name}: {doubt.fault.value}")
        answer = await self._execute(call, do)
        await _take(way_back)
        return answer

    async def _doubt(self, rule: Rule, call: Call, do: Callable[[], Awaitable[object]]) -> None:
        if rule.fault is Fault.LATE:
            self._faults.postpone(do, self._faults.rng.randint(1, rule.reach))
        elif rule.fault is Fault.EXECUTED:
            await self._execute(call, do)

    async def _execute(self, call: Call, do: Callable[[], Awaitable[T]]) -> T:
        self._faults.before_write(call)
        answer = await do()
        self._faults.after_write(call)
        return answer

    async def _set_out(self, call: Call) -> float:
        """Travel to the store; answers how long the way back will take."""
        await self._faults.run_ready()
        delay = self._faults.strike(call, {Fault.DELAY})
        there, back = (0.0, 0.0) if delay is None else self._faults.halves(delay.limit)
        await _take(there)
        self._faults.before(call)
        return back

    async def _reach(self, call: Call, do: Callable[[], Awaitable[object]] | None = None) -> None:
        """Get through to the store, or raise. `do` is what a frozen store finds in its socket later."""
        rule = self._faults.strike(call, _NO_ANSWER)
        if rule is None:
            return
        if rule.fault is Fault.UNAVAILABLE:
            raise Unavailable(f"{call.name}: {rule.fault.value}")
        if await self._outlast(rule, do):
            return
        raise (UnknownOutcome if call.writes else Unavailable)(f"{call.name}: {rule.fault.value}")

    async def _outlast(self, rule: Rule, do: Callable[[], Awaitable[object]] | None) -> bool:
        answered = False
        try:
            answered = await self._faults.end_of(rule, rule.limit)
        finally:  # given up: by the limit, or by a caller whose own deadline was shorter
            if not answered and do is not None and rule.fault is Fault.FROZEN:
                self._faults.postpone(do, rule)
        await self._faults.run_ready()
        return answered


async def _take(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
