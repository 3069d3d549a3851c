"""Two branches of the store: two masters for a while, or a failover that lost writes. Entry numbers do not show them."""

import pytest
from tests.node.scenes import with_timings

from herenow.core.model import Mode
from herenow.engines.memory import MemoryStore

pytestmark = pytest.mark.looptime(noop_cycles=0)

USERS = [f"u{number}" for number in range(12)]
HEALED_WITHIN = 8
"""Seconds in which the views of a node equal the store that it reaches again."""


async def scene(world):
    """Three nodes. Users and others on n1, a viewer of the users on n2, which writes nothing, and movers on n3."""
    n1, n2, n3 = await world.start_all("n1", "n2", "n3")
    movers = [f"m{number}" for number in range(12)]
    others = [f"x{number}" for number in range(24)]
    await world.befriend(*USERS, *movers, "bob")
    for user in (*USERS, *others):
        await world.client(user).connect(n1)
    for user in movers:
        await world.client(user).connect(n3)
    bob = world.client("bob")
    await bob.connect(n2)
    await bob.watch(*USERS)
    await world.sleep(5)
    return n1, n2, n3, movers, others, bob


def branch_of(world):
    """A second master with the same content."""
    branch = MemoryStore(len(world.store.shards), clock=world.clock.now)
    branch.restore(None, world.store.snapshot())
    return branch


def reach(node, store):
    """From now on the node talks to this master."""
    node.node.context.engine._inner._store = store


def heads(store):
    return [shard.log.head for shard in store.shards]


async def test_users_who_became_invisible_while_the_store_was_split_are_hidden_on_all_nodes_afterwards(world):
    n1, n2, n3, movers, others, bob = await scene(world)
    main, branch = world.store, branch_of(world)
    for node in (n2, n3):
        reach(node, branch)
    await world.sleep(2)
    for user in USERS:
        await n1.node.sessions.set_mode(user, Mode.INVISIBLE, None)
    for user in movers:  # the other branch gives the same numbers to other entries
        await n3.node.sessions.set_mode(user, Mode.BUSY, None)
    for mode in (Mode.AWAY, Mode.BUSY, Mode.AUTO):
        for user in others:
            await n1.node.sessions.set_mode(user, mode, None)
    await world.sleep(2)
    assert all(mine > other for mine, other in zip(heads(main), heads(branch), strict=True)), "no number went back"
    assert {bob.last(user).status for user in USERS} == {"offline"}, "the ledger hides them, whatever the branch has"
    n3.kill()
    reach(n2, main)
    await world.sleep(HEALED_WITHIN)
    assert {bob.last(user).status for user in USERS} == {"offline"}
    assert not any(bob.last(user).stale for user in USERS)


@pytest.mark.parametrize("further", [0, 1], ids=["same number", "further on"])
async def test_a_failover_of_the_store_that_lost_writes_is_noticed_by_a_node_that_writes_nothing(world, further):
    with_timings(world, grace=1_000)
    n1, _, _, _, _, bob = await scene(world)
    past = world.store.snapshot()
    for user in USERS:
        await n1.node.sessions.set_mode(user, Mode.BUSY, None)
    await world.sleep(1)
    assert {bob.last(user).status for user in USERS} == {"busy"}
    numbers = heads(world.store)
    n1.kill()
    world.store.restore(None, past)
    for number, shard in enumerate(world.store.shards):  # the store goes on from the earlier entry, by another writer
        missing = numbers[number] - shard.log.head + further
        for _ in range(missing):
            shard.log.append("somebody", None, b"\0", "another.1")
    await world.sleep(HEALED_WITHIN)
    shown = {user: bob.last(user) for user in USERS}
    stored = {user: world.stored(user).mode for user in USERS}
    assert all(view.stale or (view.status == "busy") is (stored[user] is Mode.BUSY) for user, view in shown.items())
    await world.sleep(60)
    assert {bob.last(user).status for user in USERS} == {"offline"}
