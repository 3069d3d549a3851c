"""Socket.IO's server for Python on uvicorn: events and rooms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from bench.load import Crowd, Http, masked, upgrade
from bench.peers import cache
from bench.peers.peer import STAR, STATUS, Change, Looking, Peer, Talk, token
from bench.peers.stage import python_server


class SocketIO(Peer):
    name = "socketio"
    does = (
        "python-socketio on uvicorn, one process: an event per beat, a room per person watched, an emit to the room per "
        "change; no away, no grace, no rules who may look"
    )
    quick = False
    cannot: ClassVar[dict[str, str]] = {"lookup": "has no read over HTTP; one would write it with Starlette"}

    def missing(self) -> str | None:
        return cache.python_missing()

    def install(self) -> str:
        cache.install_python()
        return f"{cache.python_version('python-socketio')}, {cache.python_version('uvicorn')}"

    @contextmanager
    def serve(self, _people: Sequence[Looking]) -> Iterator[Talk]:
        with python_server("uvicorn", "socketio_app:app") as (server, _):
            yield _Talk(server)


class _Talk(Talk):
    """Engine.IO 4 in text frames: 4 is a message; in Socket.IO 0 connects, 2 is an event, its number requests an
    answer.
    """

    frames_at_connect = 1

    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return upgrade("/socket.io/?EIO=4&transport=websocket")

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        spoken = [masked(f"40{json.dumps({'token': token(user)})}".encode())]
        if targets:
            spoken.append(masked(f"421{json.dumps(['subscribe', list(targets)])}".encode()))
        return spoken

    def beat(self) -> bytes:
        return masked(b'42["heartbeat"]')

    def star(self, crowd: Crowd) -> Change:
        [client] = self.join(crowd, [(STAR, ())])
        frame = masked(f"42{json.dumps(['change', STATUS])}".encode())
        return lambda: crowd.send(client, frame)

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        return {}
