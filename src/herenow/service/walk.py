"""Over all records of a store, page by page. For what happens rarely: a count, a dead node, a farewell."""

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
            page = await reading(engine.walk(shard, cursor, PAGE))
            part: list[tuple[str, Presence]] = []
            for user, record in page.records:
                try:
                    part.append((user, decode(record)))
                except UnknownFormat:
                    continue
            yield part
            cursor = page.cursor
            if cursor is None:
                break
