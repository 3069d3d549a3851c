"""Secrets are replaced, and timings changed, on running processes: two steps, no lost connection, no refused valid token."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx2
import pytest
from tests.processes import PATIENCE, SECRET, Server
from tests.redis_servers import running

from herenow.transport.auth import mint

pytestmark = pytest.mark.xdist_group("real processes")

NEW = "the secret that replaces the other one, long enough"


class Nodes:
    """Processes that read their secrets from one file."""

    def __init__(self, folder):
        self.folder = folder
        self.secrets = folder / "secret"
        self.write(SECRET)
        self.servers = []
        self.processes = 0
        """Processes that reload."""

    def write(self, *secrets):
        self.secrets.write_text("".join(f"{secret}\n" for secret in secrets), encoding="utf-8")

    async def start(self, *command, processes=1, **settings):
        self.processes += processes
        folder = self.folder / f"node{len(self.servers)}"
        folder.mkdir()
        shared = {"ledger": f"sqlite:///{self.folder}/shared.db", "secret_file": self.secrets, "relations": "open"}
        server = Server(folder, {**shared, "dead_after": 600, **settings}, *command)
        self.servers.append(server)
        return await server.start()

    def log_lines(self, event):
        return [line for server in self.servers for line in server.told().splitlines() if f" {event} " in line]

    async def reload(self, *secrets):
        """Write the secrets into the file, send SIGHUP to every node, and wait until all processes have read them."""
        before = len(self.log_lines("secret.reloaded"))
        self.write(*secrets)
        for server in self.servers:
            os.kill(server.pid, signal.SIGHUP)
        await until(lambda: len(self.log_lines("secret.reloaded")) == before + self.processes)

    async def statuses(self, secret):
        """HTTP status of requests with a token of this secret: of several, because workers share an address."""
        found = set()
        for server in self.servers:
            if server.url:
                for _ in range(8):
                    headers = {"authorization": f"Bearer {mint(secret, 'ana', scope=None, ttl=60, now=time.time())}"}
                    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE) as http:
                        found.add((await http.get("/api/v1/presence/me", headers=headers)).status_code)
        return found


async def until(holds):
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture
async def nodes(tmp_path):
    nodes = Nodes(tmp_path)
    yield nodes
    for server in nodes.servers:
        if server.runs:
            await server.kill()


async def replaced_in_two_steps(nodes):
    assert (await nodes.statuses(SECRET), await nodes.statuses(NEW)) == ({200}, {401})
    await nodes.reload(SECRET, NEW)
    assert (await nodes.statuses(SECRET), await nodes.statuses(NEW)) == ({200}, {200})
    await nodes.reload(NEW)
    assert (await nodes.statuses(SECRET), await nodes.statuses(NEW)) == ({401}, {200})


async def test_a_secret_is_replaced_in_two_steps_by_sighup_and_a_connection_with_an_old_token_stays(nodes):
    server = await nodes.start()
    async with server.client("ana") as ana:
        await replaced_in_two_steps(nodes)
        await ana.in_step()
        fresh = mint(NEW, "ana", scope=None, ttl=60, now=time.time())
        await ana.send("presence.refresh", token=fresh, id="fresh")
        await ana.until(lambda frame: frame.get("id") == "fresh" and frame["type"] == "presence.ok")
    assert await server.stop() == 0
    assert SECRET not in server.told()
    assert NEW not in server.told()


async def test_a_secret_is_replaced_on_all_workers_nodes_and_reapers_of_a_store_and_connections_stay(nodes):
    with running() as store:
        engine = {"engine": store.url, "shards": 4, "capacity": 10_000}
        alone = await nodes.start(**engine)
        several = await nodes.start("serve", "--workers", "2", processes=2, **engine)
        await nodes.start("reap", **engine)
        async with alone.client("ana") as ana, several.client("bo") as bo, several.client("chen") as chen:
            await replaced_in_two_steps(nodes)
            for client in (ana, bo, chen):
                await client.in_step()
        assert not nodes.log_lines("secret.not_reloaded")


async def test_a_new_secret_without_the_old_one_is_not_reloaded_and_the_log_names_the_two_steps(nodes):
    server = await nodes.start()
    nodes.write(NEW)
    os.kill(server.pid, signal.SIGHUP)
    await until(lambda: nodes.log_lines("secret.not_reloaded"))
    [line] = nodes.log_lines("secret.not_reloaded")
    assert "first give every node the old and the new one" in line
    assert (await nodes.statuses(SECRET), await nodes.statuses(NEW)) == ({200}, {401})


async def test_secrets_that_cannot_be_read_are_not_reloaded_and_the_old_ones_stay_in_use(nodes):
    server = await nodes.start()
    nodes.write("short")
    os.kill(server.pid, signal.SIGHUP)
    await until(lambda: nodes.log_lines("secret.not_reloaded"))
    assert "at least 32 bytes long" in nodes.log_lines("secret.not_reloaded")[0]
    assert await nodes.statuses(SECRET) == {200}


async def test_a_secret_is_replaced_by_two_rolling_restarts_of_nodes_on_one_store(nodes):
    with running() as store:
        engine = {"engine": store.url, "shards": 4, "capacity": 10_000}
        pair = [await nodes.start(**engine), await nodes.start(**engine)]
        for secrets, accepted in (((SECRET, NEW), SECRET), ((NEW,), NEW)):
            nodes.write(*secrets)
            for server in pair:
                assert await server.stop() == 0
                await server.start()
                assert await nodes.statuses(accepted) == {200}  # also on the node that is not restarted yet
        assert await nodes.statuses(SECRET) == {401}


async def test_a_timing_is_changed_by_removing_the_term_from_the_store_and_one_rolling_restart(nodes):
    with running() as store:
        engine = {"engine": store.url, "shards": 4, "capacity": 10_000}
        pair = [await nodes.start(grace=5, **engine), await nodes.start(grace=5, **engine)]
        await pair[0].stop()
        pair[0].environment["HERENOW_GRACE"] = "7"
        with pytest.raises(AssertionError, match=r"run HDEL \{herenow\}:terms grace in the store, and then restart"):
            await pair[0].start()
        store.client.hdel("{herenow}:terms", "grace")
        await pair[0].start()
        assert await nodes.statuses(SECRET) == {200}
        await pair[1].stop()
        with pytest.raises(AssertionError, match="grace is '5' here but '7' in the store"):
            await pair[1].start()
        pair[1].environment["HERENOW_GRACE"] = "7"
        await pair[1].start()
        assert await nodes.statuses(SECRET) == {200}
