"""Over all records of a store, page by page. For what happens rarely: a count, a dead node, a farewell, a listing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from herenow.core.model import Presence
from herenow.core.record import UnknownFormat, decode
from herenow.ports import Engine
from herenow.service.calls import reading

PAGE = 500


async def pages(
    engine: Engine, shards: Iterable[int] | None = None
) -> AsyncIterator[list[tuple[str, Presence]]]:
    """Records of a format we do not read are left out, as they are left alone everywhere."""
    for shard in range(engine.shards) if shards is None else shards:
        cursor: str | None = None
        while True:
            part, cursor = await page_of(engine, shard, cursor, PAGE)
            yield part
            if cursor is None:
                break


async def page_of(
    engine: Engine, shard: int, cursor: str | None, limit: int
) -> tuple[list[tuple[str, Presence]], str | None]:
    page = await reading(engine.walk(shard, cursor, limit))
    part: list[tuple[str, Presence]] = []
    for user, record in page.records:
        try:
            part.append((user, decode(record)))
        except UnknownFormat:
            continue
    return part, page.cursor
