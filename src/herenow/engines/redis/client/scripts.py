"""The scripts that run inside Redis, one file per operation in `lua/`.

Each touches the keys of one shard (or the leases), compares and stores, and knows neither a clock nor what a record means.
Those that handle buckets begin with `_shard.lua`, which they share. A server knows a script by its SHA-1 and is given the
text when it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

from herenow.engines.redis.client.connection import Argument, Command

_ON_BUCKETS = frozenset({"commit", "due", "load", "log", "offer", "saved", "settle", "unsettle", "walk"})


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    digest: str

    def called(self, keys: list[Argument], arguments: list[Argument]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    def in_full(self, called: Command) -> Command:
        """The same call, for a server that does not know it yet."""
        return ("EVAL", self.text, *called[2:])


@cache
def script(name: str) -> Script:
    folder = files("herenow.engines.redis") / "lua"
    text = (folder / f"{name}.lua").read_text()
    if name in _ON_BUCKETS:
        text = (folder / "_shard.lua").read_text() + text
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())
