"""J5: everybody comes back at once, each with 200 people to look at, and to the other node.

Two separate processes on one Valkey, a real socket per client: 500 of them, each with its 200, as many as two cores that do
other things too serve within a quarter of a minute. Nothing here asserts how long something took: that nobody
was refused, that nobody was shown to leave, that all ended where they should, and how often the store was asked.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from bench.load import Crowd, handshake, names, subscription
from bench.server import herenow_nodes
from tests.redis_servers import running

from bench import machine
from herenow.engines import make_engine
from herenow.service.walk import pages

pytestmark = pytest.mark.xdist_group("many sockets")

CLIENTS = 500
TARGETS = 200
CAPACITY = 10_000
AT_ONCE = 250
"""Whom one socket may watch."""

ONLINE, OFFLINE = b'"status":"online"', b'"status":"offline"'


class Snapshot:
    """What one who came back was told of those it looks at."""

    def __init__(self) -> None:
        self.online = 0
        self.wrong: list[bytes] = []

    def __call__(self, payload: bytes) -> None:
        if payload.startswith((b'{"type":"presence.welcome"', b'{"type":"presence.self"')):
            return
        self.online += payload.count(ONLINE)
        if OFFLINE in payload or b'"presence.error"' in payload or b"denied" in payload:
            self.wrong.append(payload)


@pytest.fixture
def descriptors() -> None:
    machine.raise_descriptor_limit()
    if machine.most_sockets() < CLIENTS + 50:
        pytest.skip(f"needs descriptors for {CLIENTS} sockets: ulimit -n")


def test_j5_all_who_come_back_at_once_find_everybody_and_nobody_is_seen_to_leave(
    descriptors: None,
) -> None:
    users = names(CLIENTS)
    with (
        running() as store,
        herenow_nodes(2, _contacts(users), engine=store.url, capacity=CAPACITY, grace=60) as nodes,
        Crowd(*nodes) as crowd,
    ):
        gone = crowd.join(map(handshake, users), frames_each=2)
        seen = _watchers(crowd, users)
        before = _commands(store)

        crowd.leave(gone)
        moved = [*users[1:], *users[:1]]  # by turns, so that everybody finds the other node
        back = crowd.join(map(handshake, moved), frames_each=2)
        snapshots = {client: Snapshot() for client in back}
        crowd.listeners.update(snapshots)
        for client, (before_them, after_them) in zip(back, _neighbours(moved), strict=True):
            crowd.send(client, subscription(before_them + after_them))
        crowd.until(lambda: all(each.online >= TARGETS for each in snapshots.values()))
        asked = _commands(store) - before

        while not asyncio.run(_all_stand(store.url, users)):
            crowd.settle(0.1)
        assert not [each.wrong for each in snapshots.values() if each.wrong]
        assert {each.online for each in snapshots.values()} == {TARGETS}
        assert [status for told in seen.values() for status in told] == []
        assert asked["evalsha"] < 3 * CLIENTS, asked  # to leave, to come, and to look 200 people up


def _contacts(users: list[str]) -> Iterator[tuple[str, str]]:
    """Everybody with the next hundred in the round, and so with the hundred before them; a watcher with all."""
    for user, (_, after) in zip(users, _neighbours(users), strict=True):
        yield from ((user, other) for other in after)
    for number, user in enumerate(users):
        yield f"watcher{number // AT_ONCE}", user


def _neighbours(users: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """For each of them who comes before, and who after."""
    half, endless = TARGETS // 2, users * 3
    for number in range(len(users), 2 * len(users)):
        yield endless[number - half : number], endless[number + 1 : number + 1 + half]


async def _all_stand(url: str, users: list[str]) -> bool:
    """Each holds one session, live and on a node that lives: no grace is left that could end."""
    engine = make_engine(url, shards=16, capacity=CAPACITY)
    try:
        found = {user: presence.sessions async for page in pages(engine) for user, presence in page}
        alive = {lease.epoch for lease in await engine.leases() if not lease.dead}
    finally:
        await engine.close()
    return all([s.live and s.holder in alive for s in found.get(user, ())] == [True] for user in users)


def _watchers(crowd: Crowd, users: list[str]) -> dict[int, list[dict[str, Any]]]:
    """Who stays on each node and looks at everybody; what they are told after the snapshot."""
    seen: dict[int, list[dict[str, Any]]] = {}
    for number, first in enumerate(range(0, len(users), AT_ONCE)):
        for watcher in crowd.join(map(handshake, [f"watcher{number}"] * 2), frames_each=2):
            crowd.ask([(watcher, subscription(users[first : first + AT_ONCE]))])
            seen[watcher] = []
            crowd.listeners[watcher] = functools.partial(_note, seen[watcher])
    return seen


def _note(told: list[dict[str, Any]], payload: bytes) -> None:
    told.extend(_statuses(payload))


def _statuses(payload: bytes) -> Iterator[dict[str, Any]]:
    frame = json.loads(payload)
    if frame["type"] == "presence.status":
        yield frame
    elif frame["type"] == "presence.statuses":
        yield from frame["statuses"]


def _commands(store: Any) -> Counter[str]:
    stats = store.client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})
