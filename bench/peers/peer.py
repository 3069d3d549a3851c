"""The interface of a peer: to be installed, to run, and to translate the work into its own protocol.

A new peer is a module with a `Peer` and its `Talk`, and a line in the table of this package. The work itself, in
`bench.peers.work`, is written once for all of them and for herenow.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import jwt

from bench.load import Crowd, Http, masked, names, upgrade
from bench.server import SECRET, Server

STAR = "star"
PEOPLE = names(200, "u")
"""Users of bulk reads; all of them are online."""

STATUS = {
    "type": "presence.status",
    "user_id": STAR,
    "status": "busy",
    "since": 1_790_000_000_000,
    "last_seen": None,
    "custom_status": None,
    "platforms": ["web"],
    "as_of": 1_790_000_000_000,
}
"""A status for viewers: the shape and nearly the bytes of herenow's own frame."""

WORKS = ("beats", "fan-out", "arrive", "lookup")
Change = Callable[[], None]
Looking = tuple[str, Sequence[str]]
"""A user and their targets."""


class NotInstalledError(RuntimeError):
    """A peer is missing and cannot be fetched; the message is the reason."""


class Peer(ABC):
    name: str
    does: str
    """One sentence."""
    cannot: ClassVar[dict[str, str]] = {}
    """Work it cannot do → the reason."""
    differs: ClassVar[dict[str, str]] = {}
    """Work it does differently → how."""
    quick: bool = True
    """Part of a quick run: installed within a minute, and not the second of its kind."""

    @abstractmethod
    def missing(self) -> str | None:
        """The parts that are not installed yet; None if it can be started."""

    @abstractmethod
    def install(self) -> str:
        """Fetches it into the cache unless present, and returns its version. Raises NotInstalledError."""

    @abstractmethod
    def serve(self, people: Sequence[Looking]) -> AbstractContextManager[Talk]:
        """Runs it alone on the server's core. `people`: users who will connect, for peers that must know contacts
        beforehand.
        """


class Talk(ABC):
    """One running server, and the frames of its clients."""

    frames_at_connect = 0
    """Frames a client gets after connecting."""
    frames_to_star = 0
    """Frames a change brings to the changing user."""

    def __init__(self, server: Server, store_cpu: Callable[[], float] = lambda: 0.0) -> None:
        self.server = server
        self.store_cpu = store_cpu
        """CPU seconds of a store beside it, which do not count for the peer."""
        self._asking: list[Http] = []

    def close(self) -> None:
        for each in self._asking:
            each.close()

    def http(self, bearer: str = "") -> Http:
        """An HTTP connection that is closed with this object."""
        self._asking.append(Http(self.server, bearer))
        return self._asking[-1]

    @abstractmethod
    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes: ...

    @abstractmethod
    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        """Frames a client sends after the handshake; each is answered with one frame before the next is sent."""

    @abstractmethod
    def beat(self) -> bytes: ...

    @abstractmethod
    def star(self, crowd: Crowd) -> Change:
        """A function that changes STAR, so that every viewer gets one frame."""

    @abstractmethod
    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        """Ways to read 200 users: name → (connection, request)."""

    def prepare_lookup(self, crowd: Crowd) -> None:
        """Connects the users of bulk reads first, if the peer needs that."""
        crowd.read()

    def join(self, crowd: Crowd, people: Sequence[Looking]) -> list[int]:
        """Connects users and subscribes them to their targets."""
        clients = crowd.join(
            (self.handshake(user, targets) for user, targets in people), frames_each=self.frames_at_connect
        )
        spoken = [self.openings(user, targets) for user, targets in people]
        for number in range(max(map(len, spoken), default=0)):
            crowd.ask((client, frames[number]) for client, frames in zip(clients, spoken, strict=True))
        return clients


@dataclass(frozen=True)
class JsonTalk:
    """Frames of our own two applications, with Starlette and with Channels."""

    beat: bytes = masked(b'{"type":"heartbeat"}')
    change: bytes = masked(json.dumps({"type": "set", "status": STATUS}).encode())

    @staticmethod
    def subscribe(targets: Sequence[str]) -> bytes:
        return masked(json.dumps({"type": "subscribe", "targets": list(targets)}).encode())


class JsonServer(Talk):
    """Our own server that speaks JsonTalk at /ws and answers bulk reads."""

    def __init__(self, server: Server, store_cpu: Callable[[], float], reads: Sequence[str]) -> None:
        super().__init__(server, store_cpu)
        self._reads = reads
        self._talk = JsonTalk()

    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return upgrade(f"/ws?token={token(user)}")

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        return [self._talk.subscribe(targets)] if targets else []

    def beat(self) -> bytes:
        return self._talk.beat

    def star(self, crowd: Crowd) -> Change:
        [client] = self.join(crowd, [(STAR, ())])
        return lambda: crowd.send(client, self._talk.change)

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        asked = ",".join(PEOPLE)
        http = self.http()
        return {way: (http, http.request("GET", f"/{way}?user_ids={asked}")) for way in self._reads}


def token(user: str) -> str:
    return jwt.encode({"sub": user, "exp": int(time.time()) + 7200}, SECRET, algorithm="HS256")
