"""Several nodes: workers on a real Valkey, a proxy in front of two nodes of which one stops, reapers."""

from __future__ import annotations

import re

import httpx2
import pytest
from tests.docs.nginx import nginx
from tests.docs.reader import Reader
from tests.docs.snippets import blocks, runs
from tests.docs.test_production import GUIDE, PLACES, verify
from tests.ports import free_port
from tests.processes import SECRET, Server
from tests.redis_servers import RedisProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "docs/several-nodes.md"


@pytest.fixture
def store():
    """Its own server: the test counts the workers on it."""
    server = RedisProcess().start()
    yield server
    server.close()


def from_production(name: str) -> str:
    [block] = [block for block in blocks(GUIDE) if block.name == name]
    return block


@runs(PAGE, "workers", "reap")
async def test_the_commands_of_the_several_nodes_guide_start_workers_and_a_reap_process_on_one_live_store(
    follow, store, snippets
):
    reader = follow(8000, HERENOW_SECRET=SECRET, HERENOW_PORT="0")
    assert "redis://cache.internal:6379" in snippets["workers"]
    terminal = reader.terminal()
    command = snippets["workers"].replace("redis://cache.internal:6379", store.url)
    printed = await terminal.start(command, "workers  ")
    assert re.search(r"workers\s+4", printed)
    reader.environment["HERENOW_ENGINE"] = store.url
    for line in snippets["reap"].splitlines():
        reaper = reader.terminal()
        await reaper.start(line.replace("redis://cache.internal:6379", store.url), "processes the timeouts of ")
        await reaper.interrupt()
    await terminal.interrupt()


@runs(PAGE, "workers.conf")
async def test_the_systemd_unit_of_the_several_nodes_guide_is_valid(follow, snippets):
    reader: Reader = follow(8000)
    reader.places = PLACES
    program = reader.folder / "opt/herenow/bin/herenow"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = reader.save("herenow.service", from_production("herenow.service"))
    unit.write_text(unit.read_text() + "\n" + reader.here(snippets["workers.conf"]))
    verify(unit)


@pytest.mark.usefixtures("with_nginx_at_hand")
@runs(PAGE, "upstream.conf", "location.conf")
async def test_the_nginx_proxy_of_the_several_nodes_guide_survives_the_stop_of_one_of_two_nodes(
    follow, store, tmp_path_factory, snippets
):
    reader: Reader = follow(8000, 9000)
    settings = {"engine": store.url, "ledger": f"sqlite:///{reader.folder}/shared.db"}
    nodes = [await Server(tmp_path_factory.mktemp("node"), settings).start() for _ in range(2)]
    try:
        port = free_port()
        site = from_production("site.conf")
        whole = snippets["upstream.conf"] + re.sub(
            r" *proxy_pass http://127.0.0.1:8000;\n", snippets["location.conf"], site
        )
        for machine, node in zip(("10.0.0.11:8000", "10.0.0.12:8000"), nodes, strict=True):
            assert machine in whole
            whole = whole.replace(machine, node.url.removeprefix("http://"))
        whole = re.sub(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", whole)
        whole = re.sub(r".*ssl_certificate.*\n", "", whole)
        reader.places = PLACES
        (reader.folder / "var/log/nginx").mkdir(parents=True)
        async with nginx(reader.folder, from_production("nginx.conf"), reader.here(whole), f"127.0.0.1:{port}"):
            proxied = nodes[0]
            first, proxied.url = proxied.url, f"http://127.0.0.1:{port}"
            await proxied.befriend("ana", "bo")
            async with proxied.client("ana") as ana, proxied.client("bo"):
                await ana.watch("bo")
                await ana.sees("bo", "online")
            await nodes[1].stop()
            for _ in range(4):
                async with proxied.client("ana") as ana:
                    assert (await ana.watch("bo"))["user_id"] == "bo"
            async with httpx2.AsyncClient() as http:
                assert (await http.get(first + "/readyz")).status_code == 200
    finally:
        for node in nodes:
            await node.kill()
