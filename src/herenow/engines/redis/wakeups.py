"""Due users by shard. The header of a shard has its earliest wake-up, so a call is cheap while no user is due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from herenow.engines.redis.client import Commands, Request
from herenow.engines.redis.codec import user_of
from herenow.engines.redis.keys import Keys
from herenow.engines.redis.reads import Header
from herenow.engines.redis.replies import list_of
from herenow.engines.redis.scripts import script_request
from herenow.errors import HerenowError
from herenow.ports import Due


class Wakeups:
    def __init__(self, commands: Commands, keys: Keys) -> None:
        self._commands = commands
        self._keys = keys

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        headers = await self.headers(shards)
        busy = [shard for shard, header in headers.items() if header.next_at is not None and header.next_at <= now]
        dues = await asyncio.gather(*(self._due(shard, now, limit) for shard in busy), return_exceptions=True)
        found = {
            shard: Due((), header.next_at, settled=header.settled)
            for shard, header in headers.items()
            if shard not in busy
        }
        for shard, due in zip(busy, dues, strict=True):
            match due:
                case (users, next_at):
                    found[shard] = Due(
                        tuple(user for _, user in users),
                        next_at,
                        tuple(at for at, _ in users),
                        settled=headers[shard].settled,
                    )
                case HerenowError() if len(busy) > 1:
                    continue
                case BaseException():
                    raise due
        return found

    async def _due(self, shard: int, now: int, limit: int) -> tuple[list[tuple[int, str]], int | None]:
        """Return the earliest due users of a shard, at most `limit`, with their wake-ups, and the next wake-up after
        them (None: none). It reads only `limit` buckets: each has at least one due user, so the `limit` earliest ones
        are in them."""
        keys = self._keys.shards[shard]
        reply = list_of(
            await self._commands.one(Request(keys.slot, ("ZRANGE", keys.wakes, 0, limit, "WITHSCORES")), writes=False)
        )
        first = [(int(name), int(float(at))) for name, at in zip(reply[::2], reply[1::2], strict=True)]
        early = [name for name, at in first[:limit] if at <= now]
        others = [at for _, at in first[len(early) :]]
        if not early:
            return [], min(others, default=None)
        reply = list_of(
            await self._commands.one(
                script_request(keys.slot, "due", [keys.tails, *map(keys.bucket, early)], [now]), writes=False
            )
        )
        if reply[0]:
            others.append(int(reply[0]))
        users = sorted(
            (int(at), user_of(field, body))
            for field, body, at in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
        )
        others += [at for at, _ in users[limit:]]
        return users[:limit], min(others, default=None)

    async def headers(self, shards: Sequence[int]) -> dict[int, Header]:
        """Read the headers of these shards (state, newest log entry, earliest wake-up). Shards that do not answer are
        left out; raises `Unavailable` when none does."""
        if not shards:
            return {}
        keys = [self._keys.shards[shard] for shard in shards]
        if self._commands.servers.single_server:
            request = Request(self._keys.slot, ("MGET", *(each.header for each in keys)))
            return dict(zip(shards, map(Header, list_of(await self._commands.one(request, writes=False))), strict=True))
        replies = await self._commands.each([Request(each.slot, ("GET", each.header)) for each in keys])
        found = {
            shard: Header(reply)
            for shard, reply in zip(shards, replies, strict=True)
            if not isinstance(reply, HerenowError)
        }
        if not found:
            assert isinstance(replies[0], HerenowError)
            raise replies[0]
        return found
