"""Django Channels with channels_redis: the usual choice of Python teams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from bench.peers import cache
from bench.peers.peer import JsonServer, Looking, Peer, Talk
from bench.peers.stage import python_server

_CORE = "channels_redis.core.RedisChannelLayer"
_PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"
KINDS = {
    "daphne": ("daphne", _CORE, "on daphne"),
    "uvicorn": ("uvicorn", _CORE, "on uvicorn (uvloop, httptools)"),
    "pubsub": ("uvicorn", _PUBSUB, "on uvicorn, with the layer that uses Redis' publish and subscribe"),
}


class Channels(Peer):
    differs: ClassVar[dict[str, str]] = {
        "lookup": "an async view that reads Redis by redis-py, whose CPU is not counted against it"
    }

    def __init__(self, kind: str) -> None:
        self.name = f"channels-{kind}"
        self.quick = kind == "uvicorn"
        self._runner, self._layer, how = KINDS[kind]
        self.does = (
            f"Django Channels with channels_redis {how}: stamps beats in the consumer, a group per person watched and a "
            "group_send per change; no away, no grace, no rules who may look; Redis' CPU is not counted against it"
        )

    def missing(self) -> str | None:
        return cache.python_missing()

    def install(self) -> str:
        cache.install_python()
        return ", ".join(map(cache.python_version, ("channels", "channels-redis", self._runner)))

    @contextmanager
    def serve(self, _people: Sequence[Looking]) -> Iterator[Talk]:
        with python_server(self._runner, "channels_app:application", layer=self._layer) as (server, store):
            yield JsonServer(server, lambda: store.cpu_seconds, ("get",))
