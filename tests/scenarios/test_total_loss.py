"""Two processes on one Valkey and one SQLite file: everything but the ledger is lost at once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import AsyncExitStack, closing

import pytest
from tests.processes import PATIENCE
from tests.redis_servers import running

pytestmark = pytest.mark.xdist_group("total loss")

PROMISED = 30_000  # milliseconds before the loss at most
CALM = {"relations": "open", "beat_every": 5, "dead_after": 60, "grace": 30, "node_lease": 4}
USERS = [f"user{number}" for number in range(10)]


def now() -> int:
    return round(time.time() * 1000)


async def until_marked(ledger, users):
    """Wait until the ledger has exactly these users as visible."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
                if {user for (user,) in db.execute("select user from open_marks")} == set(users):
                    return
            await asyncio.sleep(0.1)


@pytest.fixture
def store():
    with running() as server:
        yield server


async def test_h1_after_the_loss_of_live_store_and_nodes_visible_users_have_a_last_seen_of_the_last_30_s(
    store, start_server
):
    nodes = [await start_server(engine=store.url, **CALM) for _ in range(2)]
    async with AsyncExitStack() as sockets:
        for number, user in enumerate(USERS):
            await sockets.enter_async_context(nodes[number % 2].client(user))
        hides = await sockets.enter_async_context(nodes[0].client("hides"))
        await until_marked(nodes[0].ledger, [*USERS, "hides"])
        await hides.send("presence.set", mode="invisible", id="hide")
        await hides.until(lambda frame: frame.get("id") == "hide")
        hidden_by = now()
        await until_marked(nodes[0].ledger, USERS)
        await asyncio.sleep(12)  # several stamps
        for node in nodes:
            await node.kill()
        store.kill()
        lost = now()
    store.start()  # without a file: empty
    for node in nodes:
        await node.start()
    found = await nodes[1].rest("GET", f"/presence?user_ids={','.join([*USERS, 'hides'])}")
    seen = {each["user_id"]: each["last_seen"] for each in found}
    assert seen.pop("hides") <= hidden_by
    assert seen.keys() == set(USERS)
    assert all(lost - PROMISED <= at <= lost for at in seen.values())
