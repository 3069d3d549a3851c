"""`python -m bench.bulk_load PORT CONNECTIONS`: a separate process that overloads a node. Back ends read a thousand
users repeatedly, each as soon as it has its answer. The first line of standard input is the token; at the end of the
input the process ends.

A request occupies the node for some milliseconds, so the number of connections is the number of such pieces of work
that wait for each other, and delays the loop by as much.
"""

from __future__ import annotations

import json
import select
import socket
import sys

from bench.load import names

IDS = 1_000


def main() -> None:
    port, connections = map(int, sys.argv[1:])
    token = sys.stdin.readline().strip()
    body = json.dumps({"user_ids": names(IDS)}).encode()
    request = (
        "POST /api/v1/presence/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    asking: dict[int, Asking] = {}
    for _ in range(connections):
        each = Asking(port, request)
        asking[each.number] = each
        poll.register(each.number, select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            if number not in asking:
                return
            asking[number].read()


class Asking:
    """One connection that sends its request again when the answer is complete."""

    def __init__(self, port: int, request: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self._socket.fileno()
        self._request = request
        self._head = b""
        self._left = 0
        self._socket.sendall(request)

    def read(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise RuntimeError("the server closed the connection")
        if not self._left:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"refused: {head[:200]!r}")
            self._head = b""
            self._left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        self._left -= len(data)
        if not self._left:
            self._socket.sendall(self._request)


if __name__ == "__main__":
    main()
