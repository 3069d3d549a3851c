"""J5: all users reconnect at once, each with 200 targets, and to another node.

Three separate processes on one Valkey, a real socket per client: 5 000 clients with 200 targets each, a million views. A
client subscribes as soon as it is accepted, while most others are still connecting; some users change as soon as they are
back. The test asserts no times: it asserts that no client was refused, that no user was shown offline, that every viewer
ended with the right status of every target, and how many commands the store got.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from bench.load import WINDOW, Crowd, handshake, masked, names, subscription
from bench.server import herenow_nodes
from tests.redis_servers import running

from bench import machine
from herenow.engines import make_engine
from herenow.node.records.paging import pages

pytestmark = pytest.mark.xdist_group("many sockets")

CLIENTS = 5_000
TARGETS = 200
NODES = 3
BUSY = 50
"""Every fiftieth user has another mode than before."""

CAPACITY = 100_000
AT_ONCE = 250
"""Targets of one socket."""

LONG = 3_600
"""Seconds of grace and until idle: no user may leave or idle because the machine is busy."""

PATIENCE = 600.0
"""Seconds; an upper limit for hanging tests, not a promise."""

GO_BUSY = masked(b'{"type":"presence.set","mode":"busy"}')


class Status(msgspec.Struct):
    user_id: str
    status: str


class Frame(msgspec.Struct):
    """A frame of any type, with the fields needed here."""

    type: str
    user_id: str | None = None
    status: str | None = None
    statuses: list[Status] = []


_decode = msgspec.json.Decoder(Frame).decode


class Viewer:
    """A returning user: subscribes when accepted, and keeps the last status of each target."""

    def __init__(self, on_let_in: Callable[[], None]) -> None:
        self._on_let_in = on_let_in
        self.last: dict[str, str] = {}
        self.wrong: list[str] = []

    def knows(self, right: dict[str, str]) -> bool:
        return self.last == right

    def __call__(self, payload: bytes) -> None:
        frame = _decode(payload)
        match frame.type:
            case "presence.welcome":
                self._on_let_in()
            case "presence.self":
                pass
            case "presence.status" | "presence.statuses":
                for user, status in _told(frame):
                    self.last[user] = status
                    if status not in ("online", "busy"):
                        self.wrong.append(f"{user} {status}")
            case _:
                self.wrong.append(payload.decode())


@pytest.fixture
def descriptors() -> None:
    machine.raise_descriptor_limit()
    if machine.most_sockets() < CLIENTS + 100:
        pytest.skip(f"needs descriptors for {CLIENTS} sockets: ulimit -n")


def test_j5_when_all_users_reconnect_at_once_every_viewer_gets_all_statuses_and_sees_no_user_offline(
    descriptors: None,
) -> None:
    users = names(CLIENTS)
    settings = {"capacity": CAPACITY, "grace": LONG, "idle_after": LONG}
    with (
        running() as store,
        herenow_nodes(NODES, _contacts(users), engine=store.url, **settings) as nodes,
        Crowd(*nodes) as crowd,
    ):
        gone = crowd.join(map(handshake, users), frames_each=2)
        seen = _watchers(crowd, users)
        before = _commands(store)

        crowd.leave(gone)
        assert (len(users) + len(seen)) % NODES  # so that every user finds another node
        busy = frozenset(users[::BUSY])
        viewers = _come_back(crowd, users, busy)
        right = {user: "busy" if user in busy else "online" for user in users}
        wanted = [{target: right[target] for target in around} for around in _around(users)]
        for viewer, targets in zip(viewers, wanted, strict=True):
            crowd.until(functools.partial(viewer.knows, targets), PATIENCE)
        crowd.until(lambda: sum(map(len, seen.values())) >= NODES * len(busy), PATIENCE)
        asked = _commands(store) - before

        crowd.until(lambda: asyncio.run(_all_stand(store.url, users)), PATIENCE)
        assert [viewer.wrong for viewer in viewers if viewer.wrong] == []
        assert [viewer.last for viewer in viewers] == wanted  # still
        assert Counter(told for some in seen.values() for told in some) == dict.fromkeys(
            ((user, "busy") for user in busy), NODES
        )
        assert asked["evalsha"] < 3 * CLIENTS, asked  # to leave, to connect, and to read 200 users


def _come_back(crowd: Crowd, users: list[str], busy: frozenset[str]) -> list[Viewer]:
    """Connects users as fast as they are accepted; each subscribes at once."""
    viewers: list[Viewer] = []
    outside: set[int] = set()

    def let_in(client: int, frames: bytes) -> None:
        outside.discard(client)
        crowd.send(client, frames)

    for user, targets in zip(users, _around(users), strict=True):
        crowd.until(lambda: len(outside) < WINDOW, PATIENCE)
        client = crowd.knock(handshake(user))
        outside.add(client)
        frames = subscription(targets) + (GO_BUSY if user in busy else b"")
        crowd.listeners[client] = viewer = Viewer(functools.partial(let_in, client, frames))
        viewers.append(viewer)
    return viewers


def _contacts(users: list[str]) -> Iterator[tuple[str, str]]:
    """Every user has the next hundred in the ring as contacts, and so the hundred before; a watcher has all."""
    for user, (_, after) in zip(users, _neighbours(users), strict=True):
        yield from ((user, other) for other in after)
    for number, user in enumerate(users):
        yield f"watcher{number // AT_ONCE}", user


def _neighbours(users: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """For each user, those before and those after."""
    half, endless = TARGETS // 2, users * 3
    for number in range(len(users), 2 * len(users)):
        yield endless[number - half : number], endless[number + 1 : number + 1 + half]


def _around(users: list[str]) -> Iterator[list[str]]:
    return (before + after for before, after in _neighbours(users))


async def _all_stand(url: str, users: list[str]) -> bool:
    """True if each user has one live session on a live node, and no grace is left."""
    engine = make_engine(url, shards=16, capacity=CAPACITY)
    try:
        found = {user: presence.sessions async for page in pages(engine) for user, presence in page}
        alive = {lease.epoch for lease in await engine.leases() if not lease.dead}
    finally:
        await engine.close()
    return all([s.live and s.holder in alive for s in found.get(user, ())] == [True] for user in users)


def _watchers(crowd: Crowd, users: list[str]) -> dict[int, list[tuple[str, str]]]:
    """Clients that stay on each node and watch all users; client → changes after the snapshot."""
    seen: dict[int, list[tuple[str, str]]] = {}
    for number, first in enumerate(range(0, len(users), AT_ONCE)):
        for watcher in crowd.join(map(handshake, [f"watcher{number}"] * NODES), frames_each=2):
            crowd.ask([(watcher, subscription(users[first : first + AT_ONCE]))])
            seen[watcher] = []
            crowd.listeners[watcher] = functools.partial(_note, seen[watcher])
    return seen


def _note(told: list[tuple[str, str]], payload: bytes) -> None:
    frame = _decode(payload)
    if frame.type != "presence.self":
        told.extend(_told(frame))


def _told(frame: Frame) -> Iterator[tuple[str, str]]:
    if frame.user_id is not None and frame.status is not None:
        yield frame.user_id, frame.status
    yield from ((each.user_id, each.status) for each in frame.statuses)


def _commands(store: Any) -> Counter[str]:
    stats = store.client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})
