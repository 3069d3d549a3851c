"""Centrifugo: a self-hosted real-time server in Go, with channels, tokens and presence of channel members."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from bench.load import Crowd, Http, masked, upgrade
from bench.peers import cache
from bench.peers.peer import PEOPLE, STAR, STATUS, Change, Looking, Peer, Talk, token
from bench.server import SECRET, free_port, process

KEY = "a key of the benchmark"
PING = 0x89


class Centrifugo(Peer):
    name = "centrifugo"
    does = (
        "Centrifugo with its memory engine, one process on one core (GOMAXPROCS 1): tokens, a channel per person watched; "
        "the application publishes a change over HTTP. It knows who is in a channel, but no away, no grace, no last seen"
    )
    quick = False
    differs: ClassVar[dict[str, str]] = {
        "beats": "its own ping goes from the server to the client; here a WebSocket ping, answered with a pong",
        "fan-out": "nothing is decided or stored; the change is a POST of the finished value",
        "arrive": "the token is checked, but nobody is told how things stand",
        "lookup": "a batch of 200 questions how many are in a channel: there or not, and nothing else",
    }

    def missing(self) -> str | None:
        return cache.centrifugo_missing()

    def install(self) -> str:
        return cache.install_centrifugo()

    @contextmanager
    def serve(self, _people: Sequence[Looking]) -> Iterator[Talk]:
        with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder:
            port = free_port()
            configuration = Path(folder) / "centrifugo.json"
            configuration.write_text(json.dumps(_configuration(port)))
            command = [str(cache.centrifugo()), "-c", str(configuration)]
            environment = dict(os.environ) | {"GOMAXPROCS": "1"}
            with process(command, environment, Path(folder) / "server.log", port) as server:
                yield _Talk(server)


def _configuration(port: int) -> dict[str, object]:
    return {
        "address": "127.0.0.1",
        "port": str(port),
        "token_hmac_secret_key": SECRET,
        "api_key": KEY,
        "log_level": "error",
        "client_channel_limit": 1000,
        "client_queue_max_size": 10 << 20,
        "ping_interval": "600s",
        "pong_timeout": "60s",
        "namespaces": [{"name": "user", "presence": True, "allow_subscribe_for_client": True}],
    }


class _Talk(Talk):
    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return upgrade("/connection/websocket")

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        spoken = [masked(json.dumps({"id": 1, "connect": {"token": token(user)}}).encode())]
        if targets:
            each = (
                json.dumps({"id": number, "subscribe": {"channel": f"user:{target}"}})
                for number, target in enumerate(targets, 2)
            )
            spoken.append(masked("\n".join(each).encode()))
        return spoken

    def beat(self) -> bytes:
        return masked(b"", PING)

    def star(self, crowd: Crowd) -> Change:
        http = self.http()
        request = _request("/api/publish", {"channel": f"user:{STAR}", "data": STATUS})

        def change() -> None:
            status, body = http.fetch(request)
            if status != 200 or b'"error"' in body:
                raise RuntimeError(f"not published: {status} {body[:200]!r}")

        return change

    def prepare_lookup(self, crowd: Crowd) -> None:
        self.join(crowd, [(user, [user]) for user in PEOPLE])

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        asked = [{"presence_stats": {"channel": f"user:{user}"}} for user in PEOPLE]
        return {"batch": (self.http(), _request("/api/batch", {"commands": asked}))}


def _request(target: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    return (
        f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode() + content
