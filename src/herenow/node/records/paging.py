"""Walks over all records of a store, page by page. For rare tasks: counting, a dead node, the end of a run, listings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from herenow.core.model import Presence
from herenow.core.record import UnknownFormat, decode, may_mention
from herenow.kit.deadline import read_within
from herenow.ports import Engine

PAGE = 500


async def pages(
    engine: Engine, shards: Iterable[int] | None = None, epoch: str | None = None
) -> AsyncIterator[list[tuple[str, Presence]]]:
    """Walk over all records of these shards (None: of all shards), and yield them in pages of (user, presence). Records
    in an unknown format are left out and, if `epoch` is given, records that cannot contain that epoch."""
    for shard in range(engine.shards) if shards is None else shards:
        cursor: str | None = None
        while True:
            part, cursor = await page_of(engine, shard, cursor, PAGE, epoch)
            yield part
            if cursor is None:
                break


async def page_of(
    engine: Engine, shard: int, cursor: str | None, limit: int, epoch: str | None = None
) -> tuple[list[tuple[str, Presence]], str | None]:
    page = await read_within(engine.walk(shard, cursor, limit))
    part: list[tuple[str, Presence]] = []
    for user, record in page.records:
        if epoch is not None and not may_mention(record, epoch):
            continue
        try:
            part.append((user, decode(record)))
        except UnknownFormat:
            continue
    return part, page.cursor
