"""The API over a real socket: paths, bodies and connections as the server's parser handles them."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
import uvicorn
from tests.api.world import SERVICE, serving

from herenow.transport.http.uvicorn_patches import HttpProtocol


@asynccontextmanager
async def listening(app):
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=HttpProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()


@pytest.fixture
async def world():
    async with serving() as world:
        yield world


async def exchange(port, raw, *, answers=1):
    """Sends bytes; returns (status, headers, body) of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        return [await answer(reader) for _ in range(answers)]
    finally:
        writer.close()
        await writer.wait_closed()


async def answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split(" ")[1]), headers, body


def request(world, method, path, body=b"", *, by=SERVICE, more=""):
    token = world.token(by, scope="service" if by == SERVICE else None)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{more}"
    if body:
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def test_ids_with_slashes_in_a_path_are_stored_and_returned_unchanged(world):
    async with listening(world.app) as port:
        put = request(world, "PUT", "/api/v1/follows/a%2Fb/c%2Fd/")
        get = request(world, "GET", "/api/v1/follows/a%2fb/c%2Fd")
        [done] = await exchange(port, put)
        [found] = await exchange(port, get)
    assert done[0] == 204
    assert "content-length" not in done[1]
    assert json.loads(found[2]) == {"a": "a/b", "b": "c/d"}


async def test_one_http_connection_serves_many_requests(world):
    async with listening(world.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(5):
            writer.write(request(world, "GET", f"/api/v1/presence?user_ids=u{number}"))
            _, _, body = await answer(reader)
            assert json.loads(body)[0]["user_id"] == f"u{number}"
        writer.close()
        await writer.wait_closed()


async def test_a_request_body_declared_larger_than_the_limit_is_refused_before_it_is_sent(world):
    most = world.settings.max_body
    async with listening(world.app) as port:
        raw = request(world, "POST", "/api/v1/heartbeats", more=f"Content-Length: {most + 1}\r\n")
        [(status, headers, body)] = await exchange(port, raw)
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert headers["connection"] == "close"


async def test_a_request_body_in_chunked_encoding_is_read(world):
    async with listening(world.app) as port:
        more = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
        head = request(world, "POST", "/api/v1/presence/query", more=more)
        [(status, _, body)] = await exchange(port, head + b'e\r\n{"user_ids":["\r\n4\r\na"]}\r\n0\r\n\r\n')
    assert (status, json.loads(body)[0]["user_id"]) == (200, "a")


async def test_a_too_long_request_line_is_refused_and_the_error_names_the_post_endpoint(world):
    async with listening(world.app) as port:
        [(status, _, body)] = await exchange(port, request(world, "GET", "/api/v1/presence?user_ids=" + "a," * 5_000))
        assert (status, json.loads(body)["code"]) == (414, "uri_too_long")
        [(status, _, body)] = await exchange(port, request(world, "GET", "/api/v1/presence?user_ids=" + "a," * 50_000))
        assert (status, b"POST /api/v1/presence/query" in body) == (431, True)


async def test_the_response_to_a_head_request_has_no_body(world):
    async with listening(world.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(world, "HEAD", "/healthz", more="Connection: close\r\n"))
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert raw.startswith(b"HTTP/1.1 200")
    assert raw.endswith(b"\r\n\r\n")
