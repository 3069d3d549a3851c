"""Nchan: publish and subscribe inside nginx, in C."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from bench import machine
from bench.load import Crowd, Http, masked, upgrade
from bench.peers import cache
from bench.peers.peer import STAR, STATUS, Change, Looking, Peer, Talk
from bench.server import Server, free_port, process

PING = 0x89
FOLDER_OF_ITS_OWN = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs none /var/lib && mkdir /var/lib/nginx && exec "$@"',
    "sh",
)
"""The module makes nginx create a folder in /var/lib/nginx whatever its configuration says. It gets a private one, in a
namespace in which it is root; on most systems any user may create such a namespace.
"""

CONFIGURATION = """
daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile {descriptors};
load_module {module};
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections {descriptors}; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    large_client_header_buffers 4 16k;
    keepalive_requests 1000000;
    nchan_shared_memory_size 512M;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location = /healthz {{ return 200; }}
        location ~ ^/watch/(.+)$ {{
            nchan_subscriber websocket;
            nchan_channel_id $1;
            nchan_channel_id_split_delimiter ",";
            nchan_subscriber_first_message newest;
        }}
        location ~ ^/changed/(.+)$ {{
            nchan_publisher http;
            nchan_channel_id $1;
            nchan_message_buffer_length 1;
        }}
    }}
}}
"""


class Nchan(Peer):
    name = "nchan"
    does = (
        "Nchan in nginx, one worker: a channel per person watched; the application publishes a change over HTTP. It knows "
        "no users, no sessions, no status and no rules: it carries what an application has decided"
    )
    differs: ClassVar[dict[str, str]] = {
        "beats": "has no message for it; a WebSocket ping, which nginx answers with a pong, and which means nothing",
        "fan-out": "nothing is decided or stored; the change is a POST of the finished frame",
        "arrive": "no token is checked, and nobody is told how things stand",
    }
    cannot: ClassVar[dict[str, str]] = {"lookup": "has no question about several people, nor whether one is there"}

    def missing(self) -> str | None:
        return cache.nginx_missing()

    def install(self) -> str:
        return cache.install_nginx()

    @contextmanager
    def serve(self, _people: Sequence[Looking]) -> Iterator[Talk]:
        with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder:
            port = free_port()
            configuration = Path(folder) / "nginx.conf"
            configuration.write_text(
                CONFIGURATION.format(folder=folder, port=port, module=cache.nchan(), descriptors=machine.descriptors())
            )
            nginx = [str(cache.nginx()), "-p", folder, "-c", str(configuration), "-e", f"{folder}/error.log"]
            command = [*FOLDER_OF_ITS_OWN, *nginx]
            with process(command, dict(os.environ), Path(folder) / "server.log", port) as master:
                worker = _worker(master.pid)
                machine.pin(worker, machine.cores().server)
                yield _Talk(Server(worker, port))


def _worker(master: int) -> int:
    """The worker that holds the sockets; it exists when the port answers."""
    for _ in range(100):
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError("nginx has no worker")


class _Talk(Talk):
    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return upgrade(f"/watch/{','.join(targets) or user}")

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        return []

    def beat(self) -> bytes:
        return masked(b"", PING)

    def star(self, crowd: Crowd) -> Change:
        http = self.http()
        request = http.request("POST", f"/changed/{STAR}", json.dumps(STATUS).encode())

        def change() -> None:
            status, body = http.fetch(request)
            if status not in (200, 201, 202):
                raise RuntimeError(f"not published: {status} {body[:200]!r}")

        return change

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        return {}
