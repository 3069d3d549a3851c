"""A running server takes the walks described in ARCHITECTURE.md.

Each walk is run once; the packages whose code runs are recorded in the order in which they are first entered. Periodic
tasks are ignored unless a walk begins in one.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
import websockets

from herenow.app import running
from herenow.core.model import Mode
from herenow.settings import Settings
from herenow.transport.auth import mint
from herenow.transport.http import Listener
from herenow_testing.world import World

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
SECRET = "a secret of the tests that is long enough"
SHELLS = {"api", "transport", "engines", "ledgers", "relations"}
BELOW = {"people", "context", "metrics", "authority", "outages", "deadlines", "shutdown", "user_rate"}
"""Modules of the node that its parts share."""
PERIODIC = {"lease", "check", "probe", "tail", "reaper", "shares", "mail", "voids", "pulse", "relations", "wheel"}
PERIODIC |= {"round", "recorder", "run-stamp", "late-choices", "test"}


def package_of(module):
    first, *rest = module.split(".")[1:] or [""]
    if first == "node":
        return f"node.{rest[0]}" if rest and rest[0] not in BELOW else None
    return first if first in SHELLS else None


@contextmanager
def walked(besides=frozenset()) -> Iterator[list[str]]:
    """The packages entered until the end of the block. `besides`: periodic tasks that belong to the walk."""
    entered: dict[str, None] = {}
    ignored = PERIODIC - besides

    def note(frame, event, _arg):
        if event != "call":
            return
        package = package_of(str(frame.f_globals.get("__name__")))
        if package is not None and package not in entered and task_name() not in ignored:
            entered[package] = None

    found: list[str] = []
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found += entered


def task_name():
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else task.get_name()


def written():
    """Walk → packages, read from ARCHITECTURE.md."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    return {name: re.findall(r"`([a-z.]+)`", walk) for name, walk in rows}


def test_each_request_path_in_architecture_md_names_a_package_at_most_twice():
    walks = written()
    assert len(walks) == 6
    for name, packages in walks.items():
        assert all(packages.count(each) <= 2 for each in packages), name


class Client:
    def __init__(self, url):
        self.url = url
        self.http = httpx.AsyncClient(base_url=url)

    def token(self, user, scope=None):
        return mint(SECRET, user, scope=scope, ttl=600, now=time.time())

    async def call(self, method, path, user, scope=None):
        headers = {"authorization": f"Bearer {self.token(user, scope)}"}
        answer = await self.http.request(method, path, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer

    async def connect(self, user):
        headers = {"authorization": f"Bearer {self.token(user)}"}
        address = self.url.replace("http", "ws") + f"/ws/presence?device_id={user}"
        return await websockets.connect(address, additional_headers=headers)


def name_this_task():
    task = asyncio.current_task()
    assert task is not None
    task.set_name("test")


@asynccontextmanager
async def server(folder):
    """A server in this process; Ana and Bo follow each other and Bo is connected."""
    name_this_task()
    settings = Settings(ledger=f"sqlite:///{folder}/herenow.db", secret=SECRET, host="127.0.0.1", port=0)
    with Listener(settings) as listener:
        async with running(settings, listener):
            client = Client(listener.url)
            for a, b in (("ana", "bo"), ("bo", "ana")):
                await client.call("PUT", f"/api/v1/follows/{a}/{b}", "backend", "service")
            bo = await client.connect("bo")
            await until(bo, "presence.self")
            yield client
            await bo.close()
            await client.http.aclose()


async def until(socket, kind):
    async with asyncio.timeout(10):
        while json.loads(await socket.recv())["type"] != kind:
            pass


async def quiet():
    """Wait until earlier work is finished: the event loop was idle for 0.3 s."""
    idle = 0
    while idle < 6:
        begin = time.perf_counter()
        await asyncio.sleep(0.05)
        idle = idle + 1 if time.perf_counter() - begin < 0.07 else 0


async def subscribed(client):
    ana = await client.connect("ana")
    await until(ana, "presence.self")
    await quiet()
    await ana.send(json.dumps({"type": "presence.subscribe", "target_user_ids": ["bo"]}))
    await until(ana, "presence.statuses")
    return ana


async def test_connect_and_subscribe_enter_packages_in_the_order_of_architecture_md(tmp_path):
    async with server(tmp_path) as client:
        await quiet()
        with walked() as packages:
            ana = await subscribed(client)
        await ana.close()
    assert packages == written()["connect and subscribe"]


async def test_a_heartbeat_enters_packages_in_the_order_of_architecture_md(tmp_path):
    async with server(tmp_path) as client:
        ana = await subscribed(client)
        await quiet()
        with walked() as packages:
            await ana.send('{"type":"presence.heartbeat","id":7}')
            await until(ana, "presence.ok")
        await ana.close()
    assert packages == written()["heartbeat"]


async def test_a_read_of_several_users_enters_packages_in_the_order_of_architecture_md(tmp_path):
    async with server(tmp_path) as client:
        await quiet()
        with walked() as packages:
            await client.call("GET", "/api/v1/presence?user_ids=bo,x,y", "ana")
    assert packages == written()["bulk read"]


async def test_a_block_enters_packages_in_the_order_of_architecture_md(tmp_path):
    async with server(tmp_path) as client:
        ana = await subscribed(client)
        await quiet()
        with walked() as packages:
            await client.call("PUT", "/api/v1/blocks/ana", "bo")
            await until(ana, "presence.status")
        await ana.close()
    assert packages == written()["block"]


@pytest.mark.looptime(noop_cycles=0)
async def test_a_status_change_across_nodes_enters_packages_in_the_order_of_architecture_md():
    """Two nodes in this process; the second is frozen while the first commits."""
    name_this_task()
    world = World()
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bo")
    ana, bo = world.client("ana"), world.client("bo")
    await ana.connect(n1)
    await bo.connect(n2)
    await bo.watch("ana")
    await world.sleep(1)
    n2.freeze()
    with walked() as here:
        await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    with walked(besides={"tail"}) as there:
        n2.thaw()
        await world.sleep(0.2)
    assert bo.saw("ana")[-1] == "busy"
    await world.close()
    assert [*here, *there] == written()["change across nodes"]


@pytest.mark.looptime(noop_cycles=0)
async def test_the_death_of_a_node_enters_packages_in_the_order_of_architecture_md():
    name_this_task()
    world = World()
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bo")
    ana, bo = world.client("ana"), world.client("bo")
    await ana.connect(n1)
    await bo.connect(n2)
    await bo.watch("ana")
    await world.sleep(1)
    n1.kill()
    with walked(besides={"lease"}) as packages:
        await world.sleep(60)
    assert bo.saw("ana")[-1] == "offline"
    await world.close()
    assert packages == written()["death of a node"]
