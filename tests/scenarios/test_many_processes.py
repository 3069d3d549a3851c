"""Several processes as one presence server: rolling restarts, kills, supervision, separate reapers.

No test asserts how long something took. Where only one mechanism may cause an effect, the others are made impossible (a
lease of five minutes, a node that does not reap).
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.processes import PATIENCE, Server
from tests.redis_servers import running
from tests.roaming import Beating, Device

from herenow.core.model import UNLEASED
from herenow.engines import make_engine
from herenow.node.records.paging import pages

pytestmark = pytest.mark.xdist_group("real processes")

SHARDS = 4


@pytest.fixture
async def store():
    """A store that was used before, so that a missing record means absence from the start."""
    with running() as server:
        engine = engine_on(server)
        for shard in range(SHARDS):
            await engine.settle(shard, 0, 0)
            assert await engine.settle(shard, 0, 0)
        await engine.close()
        yield server


def engine_on(store):
    return make_engine(store.url, shards=SHARDS, namespace="herenow", capacity=10_000)


@pytest.fixture
async def start(store, tmp_path):
    """Starts servers with their arguments and settings; all are stopped at the end."""
    servers: list[Server] = []
    base = {"engine": store.url, "shards": SHARDS, "capacity": 10_000, "relations": "open"}

    async def start(*command, **settings):
        server = Server(tmp_path, {**base, **settings}, *command)
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        if server.runs:
            for child in psutil.Process(server.pid).children():
                child.kill()
            await server.kill()


async def until(wanted):
    async with asyncio.timeout(PATIENCE):
        while not await wanted():
            await asyncio.sleep(0.05)


async def numbers(server):
    """(name, worker) → value, for metrics without other labels."""
    async with httpx2.AsyncClient(timeout=5.0) as http:
        text = (await http.get(f"{server.url}/metrics")).text
    return {
        (sample.name, sample.labels["worker"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.keys() == {"worker"}
    }


async def everybody_stands(store, users):
    """True if no user is in grace or held by a dead node."""
    engine = engine_on(store)
    try:
        found = {user: presence.sessions async for page in pages(engine) for user, presence in page}
        alive = {UNLEASED} | {lease.epoch for lease in await engine.leases() if not lease.dead}
    finally:
        await engine.close()
    sessions = [session for user in users for session in found.get(user, ())]
    return len(sessions) >= len(users) and all(s.live and s.holder in alive for s in sessions)


def holder(server, device):
    """The worker process at the other end of this device's connection."""
    for child in psutil.Process(server.pid).children():
        if any(getattr(c.raddr, "port", 0) == device.local_port for c in child.net_connections("tcp")):
            return child
    raise AssertionError("no worker has it")


async def placed(server, device, user, *, beside):
    """Another device, on the same worker or on another one."""
    while True:
        second = await Device([server], user, roams=False).here()
        if (holder(server, second) == holder(server, device)) is beside:
            return second
        await second.leave()


async def saw(viewer, user, *words):
    return [shown["status"] for shown in viewer.shown[user]][-len(words) :] == list(words)


# --- E4


async def test_E4_a_rolling_restart_of_all_nodes_under_load_shows_viewers_no_change(start, store):
    timings = {"beat_every": 3, "dead_after": 12, "grace": 12, "node_lease": 3}
    alone, several = nodes = await both(start(**timings), start("serve", "--workers", "2", **timings))
    crowd = tuple(f"u{number}" for number in range(18))
    by_rest = tuple(f"r{number}" for number in range(3))
    async with AsyncExitStack() as stack:

        async def come(people):
            for person in people:
                stack.push_async_callback(person.leave)
            for person in people:
                await person.here()
            return people

        devices = await come([Device(nodes, user) for user in crowd])
        beating = await come([Beating(nodes, user, 0.7) for user in by_rest])
        viewers = await come([Device(nodes, f"v{number}", crowd + by_rest) for number in range(2)])
        assert await alone.stop() == 0
        await alone.start()
        before = {child.pid for child in psutil.Process(several.pid).children()}
        os.kill(several.pid, signal.SIGUSR2)
        await until(lambda: replaced(several, before))
        await until(lambda: everybody_stands(store, {*crowd, *by_rest}))
        await unchanged(viewers, crowd + by_rest)
        assert not any(viewer.was_left_in_the_dark() for viewer in viewers)
        moved = [device for device in (*devices, *viewers) if device.closes]
        assert len(moved) > 10
        assert {code for device in moved for code, _ in device.closes} <= {1012, 1006}
        assert sum(each.beats for each in beating) > 2 * len(beating)

        # A node whose store is away while it drains still ends, without a visible change. A viewer of it who moves to
        # another node may get a stale status from the ledger there.
        store.stop_the_clock()
        assert await alone.stop() == 0
        store.go_on()
        await until(lambda: everybody_stands(store, {*crowd, *by_rest}))
        await unchanged(viewers, crowd + by_rest)
        assert await several.stop() == 0


async def both(*starts):
    return list(await asyncio.gather(*starts))


async def replaced(server, before):
    now = {child.pid for child in psutil.Process(server.pid).children()}
    return len(now) == 2 and not now & before


async def unchanged(viewers, users):
    """Assert that each viewer got the same status of each user over all its connections."""
    for viewer in viewers:
        await viewer.here()
        await until(lambda viewer=viewer: knows_now(viewer, users))
        for user in users:
            assert len(viewer.words(user)) == 1, (viewer.user, user, viewer.shown[user])
            assert {word[0] for word in viewer.words(user)} == {"online"}


async def knows_now(viewer, users):
    """True if the last status of each user is not stale."""
    return not any(viewer.shown[user][-1].get("stale") for user in users)


# --- Workers


async def test_a_killed_worker_process_is_replaced_at_once_and_all_workers_end_with_their_supervisor(start):
    server = await start("serve", "--workers", "2", grace=2, node_lease=300, beat_every=5, dead_after=60)
    async with AsyncExitStack() as stack:
        bob = await Device([server], "bob", ("ana", "dora")).here()
        ana = await placed(server, bob, "ana", beside=False)
        dora = await placed(server, bob, "dora", beside=True)
        for device in (bob, dora, ana):
            stack.push_async_callback(device.leave)
        await until(lambda: saw(bob, "ana", "online"))
        await until(lambda: saw(bob, "dora", "online"))
        await until(lambda: counted(server, up=2, restarts=0, connections=3))

        # kill -9: with a lease of five minutes only the supervisor can notice so soon.
        holder(server, ana).kill()
        await until(lambda: saw(bob, "ana", "online", "offline"))
        assert bob.shown["ana"][-1]["last_seen"] is not None
        await until(lambda: counted(server, up=2, restarts=1, connections=2))

        # SIGSTOP: users of the other worker are not affected.
        [other] = {*psutil.Process(server.pid).children()} - {holder(server, bob)}
        other.suspend()
        await dora.send(type="presence.set", mode="busy")
        await until(lambda: saw(bob, "dora", "online", "busy"))
        other.resume()
        await until(lambda: counted(server, up=2, restarts=1, connections=2))

        workers = psutil.Process(server.pid).children()
        await server.kill()
        await until(lambda: closed(dora, bob))
        assert {code for device in (bob, dora) for code, _ in device.closes} == {1012}
        await until(lambda: gone(workers))


async def counted(server, *, up, restarts, connections):
    """True if the metrics, answered by any worker, have these values."""
    try:
        found = await numbers(server)
    except httpx2.HTTPError:
        return False
    sums = {name: sum(v for (each, _), v in found.items() if each == name) for name, _ in found}
    return (
        sums["herenow_worker_up"] == up
        and sums["herenow_worker_restarts_total"] == restarts
        and sums["herenow_connections"] == connections
    )


async def closed(*devices):
    return all(device.closes for device in devices)


async def gone(processes):
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


# --- Reapers


async def test_D4_a_separate_reap_process_ends_modes_and_reconnect_windows_also_those_overdue_at_its_start(start):
    settings = {"grace": 1, "node_lease": 2, "beat_every": 2, "dead_after": 20}
    node, reaper = await both(start(reap="off", **settings), start("reap", "--poll-interval", "0.2", **settings))
    async with node.client("bob") as bob:
        await bob.watch("ana")
        async with node.client("ana", "d") as ana:
            online = await bob.sees("ana", "online")
            await ana.send("presence.set", mode="busy", until=online["as_of"] + 1_500)
            busy = await bob.sees("ana", "busy")
            back = await bob.sees("ana", "online", bob.frames.index(busy))
        left = await bob.sees("ana", "offline", bob.frames.index(back))
        await reaper.kill()
        async with node.client("ana", "d"):
            again = await bob.sees("ana", "online", bob.frames.index(left))
        await reaper.start()
        await bob.sees("ana", "offline", bob.frames.index(again))
        assert await reaper.stop() == 0
    assert bob.shown("ana")[1:] == ["online", "busy", "online", "offline", "online", "offline"]
