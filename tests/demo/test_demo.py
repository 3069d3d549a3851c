"""Access to the demo: which visitors get a token, and which files its page may load."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
from tests.api.world import NOW, SECRET, problem, serving

from herenow.demo import PEOPLE, Demo
from herenow.transport.auth import ANY, verify

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def demo(peer="127.0.0.1", host="127.0.0.1:8000"):
    async with serving(peer=(peer, 1234)) as world:
        guests = Demo(world.node, SECRET, "http://127.0.0.1:8000", ANY)
        await guests.arrive()
        async with serving(peer=(peer, 1234), pages=guests.routes()) as shown:
            shown.client.headers["host"] = host
            yield guests, shown.client


def key_of(guests: Demo) -> str:
    found = re.search(r"#key=(\S+)", guests.invitation())
    assert found is not None
    return found[1]


async def test_a_visitor_on_the_servers_own_machine_gets_tokens_for_every_demo_user():
    for peer, host in (("127.0.0.1", "127.0.0.1:8000"), ("::1", "[::1]:8000"), ("127.0.0.1", "localhost")):
        async with demo(peer, host) as (_, client):
            for person in PEOPLE:
                answer = await client.get(f"/demo/token/{person}")
                assert answer.headers["cache-control"] == "no-store"
                claims = verify(answer.text, (SECRET,), now=NOW / 1000, max_ttl=3600)
                assert (claims.user, claims.is_service) == (person, False)
            problem(await client.get("/demo/token/eve"), 404, "not_found")
            problem(await client.get("/demo/token/demo"), 404, "not_found")


@pytest.mark.parametrize(
    ("peer", "host", "headers"),
    [
        ("192.0.2.7", "here.example", {}),
        ("127.0.0.1", "127.0.0.1:8000", {"x-forwarded-for": "192.0.2.7"}),
        ("127.0.0.1", "rebound.example:8000", {}),
        ("127.0.0.1", "", {}),
        ("127.0.0.1", "127.0.0.1.evil.example", {}),
        ("192.0.2.7", "127.0.0.1", {}),
    ],
)
async def test_a_remote_visitor_of_the_demo_needs_the_key_of_the_printed_link(peer, host, headers):
    async with demo(peer, host) as (guests, client):
        key = key_of(guests)
        for wrong in (None, "", "x" * len(key), key + "x", "é"):
            given = headers | ({} if wrong is None else {"x-demo-key": wrong.encode()})
            problem(await client.get("/demo/token/ana", headers=given), 403, "forbidden")
        assert (await client.get("/demo/token/ana", headers=headers | {"x-demo-key": key})).status_code == 200


async def test_the_key_in_the_demo_link_depends_only_on_the_secret():
    async with serving() as world:
        keys = [key_of(Demo(world.node, secret, "", ANY)) for secret in (SECRET, SECRET, SECRET + "x")]
    assert keys[0] == keys[1] != keys[2]
    assert SECRET not in keys[0]


async def test_the_demo_page_loads_only_files_of_this_server():
    async with demo() as (_, client):
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        files = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
        assert "/demo/demo.js" in files
        for path in files:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert not re.search(r"""["'(]https?://(?!www\.w3\.org)""", answer.text), path


async def test_a_server_started_without_demo_returns_404_for_demo_paths():
    async with serving() as world:
        for path in ("/", "/demo/token/ana", "/demo/demo.js"):
            problem(await world.client.get(path), 404, "not_found")
