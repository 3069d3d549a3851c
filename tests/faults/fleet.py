"""Several `herenow serve` processes on one store and one ledger, each behind its own proxies; a `Scene` for the
checker.

Clients reach a node through its front proxy; a node reaches the store (and a PostgreSQL ledger) through its back
proxies, so that each of these connections can be cut. The fleet itself reads the store and the ledger directly.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from tests.faults.lateness import Lateness
from tests.faults.proxy import Proxy
from tests.processes import Server, token

from herenow.core.model import Presence
from herenow.core.record import decode
from herenow.core.settle import Timings
from herenow.engines import make_engine
from herenow.errors import Unavailable
from herenow.ledgers import open_ledger
from herenow.ports import Engine, Lease, Ledger, RelationRow, Remembered
from herenow_testing.world.scene import Counts, Shown

TIMINGS = Timings(idle_after=600_000, dead_after=6_000, grace=3_000)
LEASE = 4_000
LATE = 1_000
"""Milliseconds of delay allowed besides measured lateness: ticks, log reads, reapers."""

SHARDS = 4
ANSWER = 8.0
"""Seconds before a client gives up waiting for an answer."""

STARTS = 5
"""Attempts to start a node before the run fails."""

SHIM = Path(__file__).parent / "shim"


class Member(Server):
    """A node of the fleet: a process that can be killed, frozen, cut off and given a wrong clock."""

    def __init__(self, fleet: Fleet, name: str, folder: Path, settings: dict[str, object]) -> None:
        super().__init__(folder, settings)
        self.fleet = fleet
        self.name = name
        self.front: Proxy | None = None
        self.back: Proxy | None = None
        self.side: Proxy | None = None
        """Proxy to the ledger, if it is a server."""
        self.frozen = False
        self.starting = False
        self._offset = folder / "clock"
        self._offset.write_bytes(struct.pack("d", 0.0))
        self.environment |= {"PYTHONPATH": f"{SHIM}", "FAULTS_CLOCK": str(self._offset)}

    @property
    def alive(self) -> bool:
        return not self.starting and self.process is not None and self.process.returncode is None

    @property
    def epochs(self) -> frozenset[str]:
        return self.fleet.epochs

    def version(self, user: str) -> int:
        return 0

    async def start(self) -> Member:
        self.starting = True
        await self._start_until_it_stays()
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        if self.front is None:
            self.front = await Proxy(address.hostname, address.port).start()
        self.front.target = address.hostname, address.port
        self.starting = False
        return self

    async def _start_until_it_stays(self) -> None:
        """Restart the node as a supervisor does: a node whose store does not answer in time reports it and exits."""
        for _ in range(STARTS):
            try:
                await super().start()
            except AssertionError:
                if not self.told().endswith("cannot be reached (no answer).\n"):
                    raise
            else:
                return
        raise AssertionError(f"{self.name} does not stay, after {STARTS} starts")

    @property
    def door(self) -> str:
        """Address for clients: the front proxy."""
        assert self.front is not None
        return f"127.0.0.1:{self.front.port}"

    def freeze(self) -> None:
        self.frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.frozen = False

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def step_clock(self, seconds: float) -> None:
        """Set the offset of the node's clock. Written in place: truncating a mapped file would crash its readers."""
        with self._offset.open("r+b") as offset:
            offset.write(struct.pack("d", seconds))

    async def ask(self, method: str, path: str, user: str, **body: object) -> Any:
        """Raises `httpx2.HTTPError` unless the answer is a success."""
        headers = {"authorization": f"Bearer {token(user)}"}
        async with httpx2.AsyncClient(base_url=f"{self.url}/api/v1", timeout=ANSWER) as http:
            answer = await http.request(method, path, headers=headers, json=body or None)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    async def refusal(self, method: str, path: str, user: str) -> str:
        """The detail of the error answer; empty if the request succeeds."""
        try:
            await self.ask(method, path, user)
        except httpx2.HTTPStatusError as error:
            return str(error.response.json()["detail"])
        return ""

    async def metrics(self) -> dict[str, float]:
        """Metrics by name, summed over labels; also by name{code} and name{status} if they have these labels."""
        async with httpx2.AsyncClient(timeout=ANSWER) as http:
            answer = await http.get(
                f"{self.url}/metrics", headers={"authorization": f"Bearer {token('ops', 'service')}"}
            )
            answer.raise_for_status()
        found: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                found[sample.name] += sample.value
                for label in sample.labels.values():
                    found[f"{sample.name}{{{label}}}"] += sample.value
        return dict(found)

    async def ready(self) -> bool:
        async with httpx2.AsyncClient(timeout=ANSWER) as http:
            return (await http.get(f"{self.url}/readyz")).status_code == 200

    async def answers(self, viewer: str, users: Sequence[str]) -> list[Shown]:
        told = await self.ask("GET", f"/presence?user_ids={','.join(users)}", viewer)
        return [Shown.of(each, self.fleet.now) for each in told]

    async def counts(self) -> Counts:
        metrics = await self.metrics()
        users = {word: int(metrics.get(f"herenow_users{{{word}}}", 0)) for word in ("online", "away", "busy")}
        assert self.front is not None
        connections = int(metrics["herenow_connections"])
        # The node may not yet have ended a half-open socket: the count lies between live sockets and all sockets.
        live = sum(client.link is not None and client.link.node is self for client in self.fleet.clients)
        return Counts(
            Counter({word: count for word, count in users.items() if count}),
            connections,
            min(max(connections, live), len(self.front.tunnels)),
        )


class Fleet:
    """`store`: its URL. `through_proxies`: nodes reach it through proxies (one server, not a group)."""

    def __init__(
        self, folder: Path, store: str, *, ledger: str | None = None, nodes: int = 3, through_proxies: bool = True
    ) -> None:
        self.folder = folder
        self.timings, self.lease, self.late = TIMINGS, LEASE, LATE
        self.clients: list[Any] = []
        self.died: list[str] = []
        """Client tasks that ended by an error of the test bench itself."""
        self.nodes: dict[str, Member] = {}
        self.leases: list[Lease] = []
        self.ledger_url = ledger or f"sqlite:///{folder / 'herenow.db'}"
        self._through_proxies = through_proxies
        self._store = store
        self._names = [f"n{number}" for number in range(1, nodes + 1)]
        self._engine: Engine | None = None
        self._ledger: Ledger | None = None
        self._stored: dict[str, Presence] = {}
        self.members: dict[str, Member] = {}
        self.stores: list[Any] = []
        """Known server processes of the store; their lateness delays every node."""
        self.machine = Lateness(self._pids_of_nodes, self._pids_of_stores)

    def _pids_of_nodes(self) -> list[int]:
        return [member.pid for member in self.members.values() if member.runs]

    def _pids_of_stores(self) -> list[int]:
        return [server.process.pid for server in self.stores if server.process is not None]

    async def start(self) -> Fleet:
        first, *others = [await self._member(name) for name in self._names]
        await first.start()  # creates the ledger and the terms of the store
        await asyncio.gather(*(member.start() for member in others))
        self.nodes.update(self.members)
        self._engine = make_engine(self._store, shards=SHARDS, capacity=1_000)
        self._ledger = open_ledger(self.ledger_url)
        await self._ledger.open()
        return self

    async def _member(self, name: str) -> Member:
        """Create a node without starting it."""
        folder = self.folder / name
        folder.mkdir()
        settings = {
            "engine": self._store,
            "ledger": self.ledger_url,
            "shards": SHARDS,
            "capacity": 1_000,
            "beat_every": 1.5,
            "idle_after": TIMINGS.idle_after / 1000,
            "dead_after": TIMINGS.dead_after / 1000,
            "grace": TIMINGS.grace / 1000,
            "node_lease": LEASE / 1000,
            "stuck_after": 3,
            "ledger_flush": 0.2,
        }
        back = side = None
        if self._through_proxies:
            back, settings["engine"] = await _behind_a_proxy(self._store)
        if not self.ledger_url.startswith("sqlite"):
            side, settings["ledger"] = await _behind_a_proxy(self.ledger_url)
        member = self.members[name] = Member(self, name, folder, settings)
        member.back, member.side = back, side
        return member

    async def close(self) -> None:
        for client in self.clients:
            await client.stop()
        for member in self.members.values():
            if member.process is not None and member.process.returncode is None:
                if member.frozen:
                    member.thaw()
                await member.kill()
            for proxy in (member.front, member.back, member.side):
                if proxy is not None:
                    await proxy.close()
        if self._engine is not None:
            await self._engine.close()
        if self._ledger is not None:
            await self._ledger.close()

    # The scene

    @property
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def lateness(self, begin: int, end: int) -> int:
        return self.machine.between(begin, end)

    @property
    def epochs(self) -> frozenset[str]:
        return frozenset(lease.epoch for lease in self.leases if not lease.dead)

    def everybody_stored(self) -> dict[str, Presence]:
        return self._stored

    async def look(self) -> bool:
        """Read the whole store. False if it cannot be read now; the earlier result is kept then."""
        assert self._engine is not None
        found: dict[str, Presence] = {}
        try:
            for shard in range(SHARDS):
                cursor: str | None = None
                while True:
                    page = await self._engine.walk(shard, cursor, 500)
                    found |= {user: decode(record) for user, record in page.records}
                    cursor = page.cursor
                    if cursor is None:
                        break
            self.leases = await self._engine.leases()
        except Unavailable:
            return False
        self._stored = found
        return True

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        assert self._ledger is not None
        return await self._ledger.remembered(users)

    # Nodes

    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive and not member.frozen]

    async def befriend(self, *users: str) -> None:
        """Make all users follow each other, in the ledger."""
        assert self._ledger is not None
        await self._ledger.apply([RelationRow("follow", a, b) for a in users for b in users if a != b])


async def _behind_a_proxy(url: str) -> tuple[Proxy, str]:
    """(the proxy, the URL through it)"""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    proxy = await Proxy(place.hostname, place.port).start()
    return proxy, url.replace(f"{place.hostname}:{place.port}", f"127.0.0.1:{proxy.port}")
