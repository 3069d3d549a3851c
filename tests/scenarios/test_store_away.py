"""Two `herenow serve` processes and a Valkey that is frozen or killed: modes that are set meanwhile are not lost."""

import asyncio

import pytest
from tests.processes import PATIENCE, Server
from tests.redis_servers import running

pytestmark = pytest.mark.xdist_group("real processes")


@pytest.fixture
def store():
    with running() as server:
        yield server


@pytest.fixture
async def nodes(store, tmp_path):
    settings = {"engine": store.url, "capacity": 10_000, "grace": 12, "node_lease": 3, "dead_after": 30}
    pair = [Server(tmp_path, settings) for _ in range(2)]
    try:
        await asyncio.gather(*(node.start() for node in pair))
        yield pair
    finally:
        for node in pair:
            if node.process is not None and node.process.returncode is None:
                await node.kill()


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_a_mode_set_while_the_store_is_away_is_seen_after_its_return_though_its_node_died(nodes, store, how):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n2.client("bob") as bob, n2.client("ana", "phone") as phone:
        await bob.watch("ana")
        await bob.sees("ana", "online")
        await asyncio.to_thread(store.stop_the_clock if how == "frozen" else store.kill)
        answer = await n1.rest("PUT", "/users/ana/mode", mode="busy")
        assert answer == {"mode": "busy", "until": None, "stale": True}
        await n1.kill()
        await phone.until(lambda frame: frame["type"] == "presence.self" and frame["mode"] == "busy")
        await asyncio.to_thread(store.go_on if how == "frozen" else store.start)
        async with asyncio.timeout(PATIENCE):
            while await in_store(n2) != ("busy", None):
                await asyncio.sleep(0.1)
        await bob.in_step()
        assert bob.shown("ana")[-1] == "busy"
        assert "offline" not in bob.shown("ana")[1:]


async def in_store(node):
    """Status of ana, and whether it is stale. Own status needs the store: it is decided anew."""
    try:
        await node.rest("GET", "/presence/me", "ana", service=False)
        answer = await node.rest("GET", "/presence/ana")
    except AssertionError:  # 503
        return None
    return answer["status"], answer.get("stale")


async def test_presence_set_with_an_id_is_answered_ok_with_stale_while_the_store_is_away(nodes, store):
    n1, _ = nodes
    async with n1.client("ana") as ana:
        await ana.receive("presence.self")
        await asyncio.to_thread(store.kill)
        before = len(ana.frames)
        await ana.send("presence.set", mode="away", id=1)
        assert await ana.receive("presence.ok", before) == {"type": "presence.ok", "id": 1, "stale": True}
        await ana.until(lambda frame: frame["type"] == "presence.self" and frame["mode"] == "away", before)
