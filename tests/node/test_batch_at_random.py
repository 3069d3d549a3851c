"""Batches under faults: many users in one or two shards, two nodes; unknown outcomes, silence, conflicts, new epochs.

No user is written twice at a time, versions increase, every caller gets an answer, and in the end the store matches the
held sessions.
"""

import asyncio
import random
from collections import Counter
from contextlib import nullcontext

import pytest

from herenow.core.model import Mode
from herenow.core.record import version_of
from herenow.errors import Unavailable, UnknownOutcome
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

USERS = 60
FAULTS = [None, Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE, Fault.UNAVAILABLE, Fault.SILENCE]
CALLS = [("commit",), ("commit", "load"), ("commit", "jump")]


class Watched:
    """A node's writer that records the writes in flight."""

    def __init__(self, node, problems):
        self._node = node.node
        self._problems = problems
        self._flying = Counter()
        self.largest = 0
        writer = node.node.records.decider._writer
        self._commit = writer.commit
        writer.commit = self.commit

    async def commit(self, shard, writes, epoch):
        users = [write.user for write in writes]
        self.largest = max(self.largest, len(users))
        for user in users:
            self._flying[user] += 1
            if self._flying[user] > 1:
                self._problems.append(("two at a time", user))
            if not self._node.context.people.find(user).record.deciding:
                self._problems.append(("nobody decides", user))
        try:
            return await self._commit(shard, writes, epoch)
        finally:
            self._flying.subtract(users)


class Versions:
    def __init__(self, world, problems):
        self._world = world
        self._problems = problems
        self._last = {}

    def look(self):
        for user, record in self._world.store.records().items():
            version = version_of(record)
            if version < self._last.get(user, 0):
                self._problems.append(("a version fell", user))
            self._last[user] = version


async def ask(node, user, mode):
    try:
        await node.node.sessions.set_mode(user, mode, None)
    except (Unavailable, UnknownOutcome):
        pass


def fault(dice, world):
    kind = dice.choice(FAULTS)
    if kind is None:
        return nullcontext()
    return world.faults.during(Rule(kind, probability=dice.choice([0.2, 0.5]), calls=dice.choice(CALLS)))


def at_rest(world, nodes, clients):
    """Differences from the expected final state."""
    stored = world.everybody_stored()
    for client in clients:
        presence = stored.get(client.user)
        sessions = presence.sessions if presence else ()
        live = [s for s in sessions if s.device == client.device and s.live]
        if len(live) != (client.link is not None):
            yield ("ghost" if client.link is None else "missing", client.user, client.device)
    for node in nodes:
        for person in node.node.context.people:
            if person.record.deciding or person.record.dirty or person.record.pending_edits or person.record.committing:
                yield ("unfinished", person.user)
        if node.node.records.decider._dirty or len(node.node.records.decider._timeout):
            yield ("left over", node.name)


@pytest.mark.parametrize("seed", range(6))
async def test_after_random_faults_the_store_matches_the_open_connections(seed):
    dice, problems, asked = random.Random(seed), [], []
    world = World(shards=dice.choice([1, 2]), seed=seed)
    nodes = await world.start_all("n1", "n2")
    watched = [Watched(node, problems) for node in nodes]
    versions = Versions(world, problems)
    clients = [world.client(f"u{n:03}", device=device) for n in range(USERS) for device in ("d1", "d2")]
    for client in clients[::2]:
        client.open(dice.choice(nodes))
    await world.sleep(1)
    for _ in range(7):
        with fault(dice, world):
            for _ in range(dice.randint(1, 4)):
                for client in dice.sample(clients, dice.randint(10, len(clients))):
                    if client.link is None:
                        client.open(dice.choice(nodes))
                    else:
                        client.close()
                for client in dice.sample(clients, 15):
                    wish = ask(dice.choice(nodes), client.user, dice.choice(list(Mode)))
                    asked.append(asyncio.create_task(wish))
                await world.sleep(dice.choice([0, 0.0005, 0.01, 0.3, 1.0, 3.0]))
                versions.look()
            if dice.random() < 0.2:
                nodes[0].node.context.authority.retired = True
        await world.sleep(dice.choice([0.01, 1, 6, 35]))
        versions.look()
    await world.sleep(100)
    versions.look()
    assert all(each.done() for each in asked)
    await asyncio.gather(*asked)
    assert [*problems, *at_rest(world, nodes, clients)] == []
    assert max(each.largest for each in watched) > 10
    await world.close()
