"""A whole cluster in one process, under simulated time: nodes and the clients that connect to them.

    world = World(shards=4)
    node = await world.start("n1")
    ana, bob = world.client("ana", "phone"), world.client("bob", "web")
    world.befriend("ana", "bob")
    await ana.connect(node)
    await bob.connect(node)
    await bob.watch("ana")
    ana.vanish()                                    # a half-open socket: the node does not know
    await world.sleep(120)
    assert bob.saw("ana") == ["online", "offline"]

Each node has its own handle on one store, a clock that follows the event loop, and a `Freezer`, so that it can be frozen and
killed. A client also does the work of the WebSocket server: it answers pings, and reports a socket that the node closed as
closed.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec

from herenow.core.model import Platform, Presence, Status
from herenow.core.record import EPOCH_BYTES, decode
from herenow.core.settle import Timings
from herenow.engines.memory import MemoryStore
from herenow.errors import ProtocolError
from herenow.kit.clock import NodeClock
from herenow.kit.tasks import Tasks
from herenow.node import Node, Reaping, make_context
from herenow.node.context import timings_of
from herenow.node.people import Connection
from herenow.ports import Engine, RelationRow, Relations, Remembered
from herenow.settings import Settings
from herenow.wire.codes import Close
from herenow.wire.inputs import Activity
from herenow_testing.faults.faulty_engine import Faults, FaultyEngine
from herenow_testing.faults.freezing import Freezer
from herenow_testing.faults.plan import StoreFaults
from herenow_testing.world.manual_clock import START, LoopClock
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.scene import Counts, Shown, Witness
from herenow_testing.world.settings import node_settings

PONG_EVERY = 25.0
"""Seconds between two pongs of a client that does nothing else."""

RESET = 1006
"""The close code that a client gets when its node dies."""

T = TypeVar("T")


class Store(StoreFaults, Protocol):
    """The store that nodes share, with direct access to its records."""

    def handle(self) -> Engine: ...

    def records(self) -> Mapping[str, bytes]: ...


class World:
    def __init__(
        self,
        *,
        shards: int = 4,
        seed: int = 0,
        settings: Settings | None = None,
        ledger: MemoryLedger | None = None,
        store: Store | None = None,
        start: int = START,
        relations: Relations | None = None,
    ) -> None:
        """Create a cluster that has no nodes and clients yet. `seed` makes random faults repeatable. `start` is the
        time of the store's clock, in epoch milliseconds, when the loop's time is 0."""
        self.start_at = start
        self.clock = LoopClock(start)
        self.store: Any = store or MemoryStore(shards, clock=self.clock.now)
        self.faults = Faults(seed, store=self.store)
        self.ledger = ledger or MemoryLedger()
        self.settings = settings or node_settings(embedded=False)
        self.relations = relations
        """The source of relations; None: the ledger."""
        self.rng = Random(seed)
        self.nodes: dict[str, SimNode] = {}
        self.clients: list[Client] = []
        self.pong_every = PONG_EVERY
        self._buried: list[SimNode] = []

    @property
    def now(self) -> int:
        """The current time in epoch milliseconds, by the store's clock."""
        return self.clock.now()

    @property
    def timings(self) -> Timings:
        """The timings (`grace`, `idle_after` and others) of nodes that are started now."""
        return timings_of(self.settings)

    @property
    def lease(self) -> int:
        return round(self.settings.node_lease * 1000)

    @property
    def late(self) -> int:
        """Milliseconds from a change until all viewers have received it: a flush, reading the log, a reaper's poll."""
        return 1_000

    def lateness(self, begin: int, end: int) -> int:
        """Milliseconds between `begin` and `end` in which the machine was busy with other work. It is always 0, because
        simulated time does not advance while work is ready."""
        return 0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, at: int) -> None:
        """Sleep until `at` (epoch ms) by the store's clock."""
        await asyncio.sleep(max(0, at - self.now) / 1000)

    # Nodes

    async def start(
        self, name: str, *, settings: Settings | None = None, reaping: Reaping | None = None, ahead: int = 0
    ) -> SimNode:
        """Start a node and return it. `ahead` is the error of its clock in ms, before it follows the store's clock."""
        node = SimNode(self, name, settings or self.settings, reaping, ahead)
        self.nodes[name] = node
        await node.run(node.node.start({"ledger": self.ledger.id}))
        return node

    async def start_all(self, *names: str) -> list[SimNode]:
        return [await self.start(name) for name in names]

    def dead(self, node: SimNode) -> None:
        self._buried.append(node)
        if self.nodes.get(node.name) is node:
            del self.nodes[node.name]

    async def close(self) -> None:
        """Cancel all tasks at the end of a test. Nodes that still run are not shut down gracefully."""
        for client in self.clients:
            client.stop()
        for node in [*self.nodes.values(), *self._buried]:
            await node.bury()

    # Clients

    def client(self, user: str, device: str = "d1", platform: Platform = Platform.WEB) -> Client:
        client = Client(self, user, device, platform)
        self.clients.append(client)
        return client

    async def befriend(self, *users: str) -> None:
        """Let all these users follow each other, in the ledger."""
        pairs = [(a, b) for a in users for b in users if a != b]
        await self.ledger.apply([RelationRow("follow", a, b) for a, b in pairs])

    # The content of the store and the ledger

    def stored(self, user: str) -> Presence | None:
        record = self.store.records().get(user)
        return None if record is None else decode(record)

    def everybody_stored(self) -> dict[str, Presence]:
        return {user: decode(record) for user, record in self.store.records().items()}

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        return await self.ledger.remembered(users)


class Gone(Exception):  # noqa: N818 - reads as what it is
    """The node that should execute a call was killed."""


class SimNode:
    """A node in a simulated process."""

    def __init__(self, world: World, name: str, settings: Settings, reaping: Reaping | None, ahead: int) -> None:
        loop = asyncio.get_running_loop()
        self.world = world
        self.name = name
        self.freezer = Freezer()
        self.faulty = FaultyEngine(world.store.handle(), world.faults, name)
        rng = Random(world.rng.random())
        context = make_context(
            self.faulty,
            world.ledger,
            settings,
            reaping=reaping,
            clock=NodeClock(world.start_at + round(loop.time() * 1000) + ahead, monotonic=loop.time),
            tasks=Tasks(self.freezer.spawn),
            make_epoch=lambda: urlsafe_b64encode(rng.randbytes(EPOCH_BYTES)).decode(),
        )
        self.node = Node(context, relations=world.relations)
        self.links: dict[Link, None] = {}
        self._death: asyncio.Future[None] = loop.create_future()

    @property
    def alive(self) -> bool:
        return not self.freezer.killed

    @property
    def frozen(self) -> bool:
        return self.freezer.frozen

    @property
    def epochs(self) -> frozenset[str]:
        return frozenset({self.node.context.authority.epoch})

    def version(self, user: str) -> int:
        person = self.node.context.people.find(user)
        return 0 if person is None else person.record.presence.version

    async def answers(self, viewer: str, users: Sequence[str]) -> list[Shown]:
        statuses = await self.node.viewing.statuses(viewer, users)
        return [Shown.of(msgspec.json.decode(each), self.world.now) for each in statuses]

    async def counts(self) -> Counts:
        metrics = self.node.context.metrics
        users = {Status(status).word: count for status, count in metrics.users.items() if count}
        return Counts(Counter(users), metrics.connections, len(self.links))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the simulated process, so that it freezes with that. Raises `Gone` if the process is
        killed."""
        task = self.freezer.spawn(work, "errand")
        await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone(self.name)
        result: T = task.result()
        return result

    def freeze(self) -> None:
        self.freezer.freeze()

    def thaw(self) -> None:
        self.freezer.thaw()

    def kill(self) -> None:
        """Kill the process without cleanup; its sockets are reset."""
        self.freezer.kill()
        self._death.set_result(None)
        self.node.delivery.close()
        self.node.records.close()
        self.world.dead(self)
        for link in list(self.links):
            if not link.silent:
                link.client.ended(link, RESET, "reset")

    async def stop(self) -> None:
        await self.run(self.node.stop())
        self.world.dead(self)

    async def bury(self) -> None:
        self.node.delivery.close()
        self.node.records.close()
        self.freezer.kill()
        await self.freezer.bury()


class Client:
    """One device of one user, with at most one socket at a time. It keeps all that it received."""

    def __init__(self, world: World, user: str, device: str, platform: Platform) -> None:
        self.world = world
        self.user = user
        self.device = device
        self.platform = platform
        self.link: Link | None = None
        self.frames: list[tuple[int, dict[str, Any]]] = []
        self.shown: dict[str, list[Shown]] = {}
        self.closed_with: list[tuple[int, int, str]] = []
        """(epoch ms, code, reason) of every close by a node."""
        self.on_closed: Callable[[Client, int], None] | None = None
        self.witness: Witness = Witness()
        self._pongs: asyncio.Task[None] | None = None

    @property
    def node(self) -> SimNode | None:
        return None if self.link is None else self.link.node

    @property
    def connected(self) -> bool:
        """True if the client has a socket that is not half-open."""
        return self.link is not None and not self.link.silent

    @property
    def connection(self) -> Connection:
        """The node's object for this client's socket."""
        assert self.link is not None
        assert self.link.connection is not None
        return self.link.connection

    # Connecting and closing

    async def connect(self, node: SimNode) -> None:
        """Open a socket to a node, and give the node a millisecond to react."""
        self.open(node)
        await asyncio.sleep(0.001)

    def open(self, node: SimNode) -> None:
        """Open a socket to a node without waiting. A frozen node accepts it when it resumes."""
        assert self.link is None, f"{self.user} {self.device} is connected already"
        self.link = Link(self, node)
        node.links[self.link] = None
        self.witness.opened(self)
        node.freezer.deliver(self.link.opened)
        if self._pongs is None:
            self._pongs = asyncio.get_running_loop().create_task(self._answer_pings(), name="pongs")

    def close(self) -> None:
        """Close the socket properly, with FIN or RST."""
        self.witness.ended(self, "closed")
        link = self._cut()
        link.node.freezer.deliver(link.closed)

    def vanish(self) -> None:
        """Leave the socket half-open: no FIN, no RST, no pongs. The node does not notice; the device may open another
        socket."""
        self.witness.ended(self, "vanished")
        link, self.link = self._link(), None
        link.silent = True

    async def bye(self) -> None:
        """Sign this device out through its own socket."""
        link = self._link()
        self.witness.signs_out(self.user, self.device)
        await link.node.run(link.signs_out())

    def _cut(self) -> Link:
        link, self.link = self._link(), None
        link.node.links.pop(link, None)
        return link

    def _link(self) -> Link:
        assert self.link is not None, f"{self.user} {self.device} is not connected"
        return self.link

    def stop(self) -> None:
        if self._pongs is not None:
            self._pongs.cancel()

    # Activity

    def pong(self) -> None:
        self._report(lambda node, connection: node.sessions.alive(connection.session))

    def beat(self, activity: Activity | None = None) -> None:
        self._report(lambda node, connection: node.sessions.beat(connection.session, activity))

    def act(self) -> None:
        self._report(lambda node, connection: node.sessions.act(connection.session, Activity.ACTIVE))

    def rest(self) -> None:
        """Report that this device is idle."""
        self._report(lambda node, connection: node.sessions.act(connection.session, Activity.IDLE))

    def _report(self, what: Callable[[Node, Connection], object]) -> None:
        if self.link is not None:
            self.witness.lived(self)
            self.link.tell(what)

    async def _answer_pings(self) -> None:
        while True:
            await asyncio.sleep(self.world.pong_every)
            self.pong()

    # Watching

    async def watch(self, *users: str) -> list[str]:
        """Subscribe to users; returns those that the node denied."""
        link = self._link()
        return await link.node.run(self._subscribe(link, list(users)))

    async def watch_contacts(self) -> list[str]:
        link = self._link()
        return await link.node.run(self._subscribe(link, None))

    async def _subscribe(self, link: Link, users: list[str] | None) -> list[str]:
        subscriptions, connection = link.node.node.viewing.subscriptions, link.connection
        if connection is None:
            return []
        if users is None:
            granted = await subscriptions.subscribe_contacts(connection.outbox)
        else:
            granted = await subscriptions.subscribe(connection.outbox, users)
        if self.link is link:
            for body, as_of in granted.statuses:
                self._show(msgspec.json.decode(body + b"}") | {"as_of": as_of}, answer=True)
        return [user for user, _ in granted.denied]

    def saw(self, user: str) -> list[str]:
        """The statuses of a user that the client received, in order, without repetitions."""
        words: list[str] = []
        for shown in self.shown.get(user, ()):
            if not words or words[-1] != shown.status:
                words.append(shown.status)
        return words

    def last(self, user: str) -> Shown:
        return self.shown[user][-1]

    def forget(self) -> None:
        """Clear the received frames and statuses."""
        self.frames.clear()
        self.shown.clear()

    def own(self) -> dict[str, Any]:
        """The last frame `presence.self` that the client received: the user's own presence."""
        return self.of_type("presence.self")[-1]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [frame for _, frame in self.frames if frame["type"] == kind]

    # Called by the node

    def receive(self, frame: bytes) -> None:
        said = msgspec.json.decode(frame)
        self.frames.append((self.world.now, said))
        match said["type"]:
            case "presence.self":
                self.witness.greeted(self)
            case "presence.typing":
                self.witness.typing(self, said["user_id"])
            case "presence.status":
                self._show(said)
            case "presence.statuses":
                for status in said["statuses"]:
                    self._show(status)

    def _show(self, status: dict[str, Any], *, answer: bool = False) -> None:
        shown = Shown.of(status, self.world.now, answer=answer)
        self.shown.setdefault(shown.user, []).append(shown)
        self.witness.shown(self, shown)

    def ended(self, link: Link, code: int, reason: str) -> None:
        """Record that the node closed the socket, and report it to the witness and `on_closed`."""
        if self.link is link:
            self.closed_with.append((self.world.now, code, reason))
            self.witness.ended(self, f"by node: {code}")
            self._cut()
            if self.on_closed is not None:
                self.on_closed(self, code)


class Link:
    """One socket between a client and its node."""

    def __init__(self, client: Client, node: SimNode) -> None:
        self.client = client
        self.node = node
        self.silent = False
        """The socket is half-open: nothing gets through, and the node does not know it."""
        self.connection: Connection | None = None

    def opened(self) -> None:
        client = self.client
        try:
            self.connection = self.node.node.sessions.connect(
                client.user,
                client.device,
                client.platform,
                send=self._send,
                end=self._end,
                abort=lambda: self._end(Close.NO_LIFE, "stuck"),
            )
        except ProtocolError as error:
            client.ended(self, Close.TOO_MANY_CONNECTIONS, error.code)
            return
        self.connection.welcomed = True
        if self.connection.session.asserted:
            self.node.node.sessions.greet(self.connection.session)

    def tell(self, what: Callable[[Node, Connection], object]) -> None:
        if not self.silent:
            self.node.freezer.deliver(lambda: self._deliver(what))

    def _deliver(self, what: Callable[[Node, Connection], object]) -> None:
        if self.connection is not None:
            what(self.node.node, self.connection)

    async def signs_out(self) -> None:
        """Sign the device out and close the socket, as the WebSocket server does on the frame `presence.bye`."""
        client, connection = self.client, self.connection
        if connection is not None:
            try:
                await self.node.node.sessions.sign_out(client.user, client.device, but=connection)
            finally:
                self._end(Close.NORMAL, "signed out")

    def closed(self, *, alive: bool = True) -> None:
        """Remove the connection from the node, as the WebSocket server does when a socket is closed. `alive`: the
        client closed it, which counts as a sign of life."""
        self.node.links.pop(self, None)
        connection, self.connection = self.connection, None
        if connection is not None:
            self.node.node.sessions.gone(connection, alive=alive)

    def _send(self, frame: bytes) -> None:
        if not self.silent:
            self.client.receive(frame)

    def _end(self, code: int, reason: str) -> None:
        """Close the socket for the node. The client is informed at once; `closed` runs one iteration of the event loop
        later, as in the WebSocket server."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self.node.freezer.deliver, lambda: self.closed(alive=False))
        if not self.silent:
            self.client.ended(self, code, reason)
