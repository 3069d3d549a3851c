"""The scripts that run inside Redis, one file per operation in `lua/`.

A script uses the keys of one shard (or the leases), compares and stores. It reads no clock and interprets no record but for
its version. Scripts that handle buckets are prefixed with `_shard.lua`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from herenow.engines.redis.client import Argument, Request, Script

_ON_BUCKETS = frozenset({"commit", "due", "load", "log", "offer", "saved", "settle", "unsettle", "walk"})


def script_request(slot: int, name: str, keys: list[Argument], arguments: list[Argument]) -> Request:
    """Return a request that runs the script `lua/<name>.lua` on the Redis server of a cluster slot."""
    return Request.of_script(slot, _script(name), keys, arguments)


@cache
def _script(name: str) -> Script:
    folder = files("herenow.engines.redis") / "lua"
    text = (folder / f"{name}.lua").read_text()
    if name in _ON_BUCKETS:
        text = (folder / "_shard.lua").read_text() + text
    return Script.of(name, text)
