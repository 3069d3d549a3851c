"""What only the operator's services may ask: why does somebody see what they see, and who is here at all?"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass

from herenow.core.explain import Explained, explained
from herenow.core.model import Mode, Status
from herenow.core.settle import Timings
from herenow.core.visibility import Facts, Verdict, judge
from herenow.errors import ProtocolError
from herenow.node.access.relation_cache import Acquaintances
from herenow.node.records.decider import Decider
from herenow.node.records.pages import page_of
from herenow.node.viewing.views import Views
from herenow.ports import Engine

PAGES = 20
"""Pages of the store that one answer may look through: a page may hold nobody who was asked for."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    verdict: Verdict
    facts: Facts
    status: bytes
    """Complete, as the viewer gets it."""
    truth: Explained


class Inquiries:
    def __init__(
        self, engine: Engine, relations: Acquaintances, decider: Decider, views: Views, timings: Timings
    ) -> None:
        self._engine = engine
        self._relations = relations
        self._decider = decider
        self._views = views
        self._timings = timings

    async def explain(self, viewer: str, target: str) -> Inquiry:
        """Raises `Unavailable` where the facts cannot be learned: a guess explains nothing."""
        presence = await self._decider.decided(target)
        invisible = presence.mode is Mode.INVISIBLE
        facts = Facts(same_user=True)
        if viewer != target:
            facts = await self._relations.facts(viewer, target, invisible=invisible)
        [status] = await self._views.statuses(viewer, [target])
        return Inquiry(judge(facts), facts, status, explained(presence, self._timings))

    async def users(
        self, viewer: str | None, wanted: Collection[Status], cursor: str | None, limit: int
    ) -> tuple[list[bytes], str | None]:
        """Statuses of users in the store who look so to the viewer (None: who are so), and where to go on. Whoever stays
        throughout a walk is there at least once."""
        shard, place = _parsed(cursor)
        for _ in range(PAGES):
            if shard >= self._engine.shards:
                return [], None
            try:
                part, place = await page_of(self._engine, shard, place, limit)
            except ValueError:
                raise _bad_cursor() from None
            if place is None:
                shard += 1
            if found := await self._views.those(viewer, part, wanted):
                return found, self._next(shard, place)
        return [], self._next(shard, place)

    def _next(self, shard: int, place: str | None) -> str | None:
        if shard >= self._engine.shards:
            return None
        return urlsafe_b64encode(f"{shard}:{place or ''}".encode()).decode().rstrip("=")


def _parsed(cursor: str | None) -> tuple[int, str | None]:
    if cursor is None:
        return 0, None
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        shard, separator, place = text.partition(":")
        if not separator or not (shard.isascii() and shard.isdigit()):
            raise ValueError(cursor)
        return int(shard), place or None
    except ValueError:
        raise _bad_cursor() from None


def _bad_cursor() -> ProtocolError:
    return ProtocolError("bad_shape", "The parameter cursor is not one that this server gave.")
