"""A Lua script: it is called by its SHA-1, and sent in full to a server that does not know it yet."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1

from herenow.engines.redis.client.redis_connection import Argument, Command


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    digest: str

    @classmethod
    def of(cls, name: str, text: str) -> Script:
        return cls(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())

    def called(self, keys: list[Argument], arguments: list[Argument]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    def in_full(self, called: Command) -> Command:
        """Return the command `called` (EVALSHA) with the script's text instead of its SHA-1 (EVAL)."""
        return ("EVAL", self.text, *called[2:])
