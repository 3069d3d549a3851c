"""`python -m bench.abuser PORT KIND`: a separate process that sends as much of one kind as a node reads. The first line of
standard input is the token of its user; at the end of the input the process ends. It reads all answers and drops them, and
connects again when it is closed.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping

from bench.load import PATH, masked, names, upgrade

PING = 0x89
AHEAD = 1 << 18
"""Bytes prepared at a time."""

BULK = 1_000


def _frames(*frames: Mapping[str, object]) -> Iterator[bytes]:
    return itertools.cycle([masked(json.dumps(frame).encode()) for frame in frames])


def _lists(kind: str) -> dict[str, object]:
    return {"type": f"presence.{kind}", "target_user_ids": names(BULK), "id": 1}


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "heartbeats": lambda: _frames({"type": "presence.heartbeat"}),
    "heartbeats with ids": lambda: _frames({"type": "presence.heartbeat", "id": 1}),
    "subscribes to one": lambda: _frames(
        {"type": "presence.subscribe", "target_user_id": "user00001"},
        {"type": "presence.unsubscribe", "target_user_id": "user00001"},
    ),
    "subscribes to 1 000": lambda: _frames(_lists("subscribe"), _lists("unsubscribe")),
    "modes": lambda: _frames(*({"type": "presence.set", "mode": mode} for mode in ("busy", "away", "auto"))),
    "custom statuses": lambda: _frames(
        *({"type": "presence.set", "custom_status": {"text": text}} for text in ("lunch", "tea"))
    ),
    "typing": lambda: _frames(
        *({"type": "presence.typing", "to": "user00001", "typing": typing} for typing in (True, False))
    ),
    "pings": lambda: itertools.repeat(masked(b"", PING)),
    "malformed frames": lambda: itertools.repeat(masked(b'{"type":')),
    "64 KB of ignored JSON": lambda: _frames({"type": "presence.heartbeat", "ignored": ["x" * 60] * 1_000}),
}
REST = "REST"
TWENTY = "heartbeats with ids on 20 connections"
ALL = (*KINDS, TWENTY, REST)


def main() -> None:
    port, kind = int(sys.argv[1]), sys.argv[2]
    token = sys.stdin.readline().strip()
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    connections: dict[int, Flood | Requests] = {}

    def connect() -> None:
        each = Requests(port, token) if kind == REST else Flood(port, token, kind)
        connections[each.number] = each
        poll.register(each.number, each.events)

    for _ in range(20 if kind in (REST, TWENTY) else 1):
        connect()
    while True:
        for number, events in poll.poll():
            if number not in connections:
                return
            try:
                connections[number].go_on(events)
            except OSError:
                connections.pop(number).close()
                connect()


class Flood:
    """One WebSocket that sends as fast as the node reads."""

    events = select.EPOLLIN | select.EPOLLOUT

    def __init__(self, port: int, token: str, kind: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self.number = self._socket.fileno()
        self._socket.sendall(upgrade(PATH, f"Authorization: Bearer {token}\r\n"))
        self._socket.setblocking(False)  # noqa: FBT003
        frames = KINDS["heartbeats with ids" if kind == TWENTY else kind]()
        self._load = b""
        while len(self._load) < AHEAD:
            self._load += next(frames)
        self._at = 0

    def go_on(self, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not self._socket.recv(1 << 20):
            raise ConnectionResetError
        if events & select.EPOLLOUT:
            self._at += self._socket.send(self._load[self._at :])
            self._at %= len(self._load)

    def close(self) -> None:
        self._socket.close()


class Requests:
    """One HTTP connection that sends a request whenever it has got the answer to the last one."""

    events = select.EPOLLIN

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self.number = self._socket.fileno()
        self._request = (
            f"GET /api/v1/presence/me HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        self._socket.sendall(self._request)

    def go_on(self, _events: int) -> None:
        if not self._socket.recv(1 << 16):  # a short answer is one segment
            raise ConnectionResetError
        self._socket.sendall(self._request)

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    main()
