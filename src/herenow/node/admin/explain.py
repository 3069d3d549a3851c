"""Queries for the operator's services only: why a viewer sees a status, and which users are in the store."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from dataclasses import dataclass

from herenow.core.explain import Explained, explained
from herenow.core.model import Mode, Status
from herenow.core.visibility import Facts, Verdict, judge
from herenow.errors import ProtocolError
from herenow.node.access import RelationCache
from herenow.node.cluster import Cluster
from herenow.node.context import Context
from herenow.node.records import Records, page_of
from herenow.node.viewing import Viewing

PAGES = 20
"""Pages of the store that one request may read: a page may contain no match."""


@dataclass(frozen=True, slots=True)
class Explanation:
    verdict: Verdict
    facts: Facts
    status: bytes
    truth: Explained
    must_verify: bool
    """This node must verify the target's shard against the store: its views are stale until then."""
    ends_wait: bool
    """No user of the target's shard is shown offline now: the shard cannot be written, or could not a moment ago."""


class Explain:
    def __init__(
        self, context: Context, records: Records, cluster: Cluster, access: RelationCache, viewing: Viewing
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._records = records
        self._access = access
        self._viewing = viewing

    async def explain(self, viewer: str, target: str) -> Explanation:
        """Return how the viewer sees the target, why, and the target's true status. Raises `Unavailable` if relation or
        block between them are unknown: a guess explains nothing."""
        shard = self._context.people.shard_of(target)
        ends_wait = self._context.authority.outages.ends_wait(shard)
        if ends_wait:
            [(presence, _)] = await self._records.read([target])
        else:
            presence = await self._records.wait_decided(target)
        invisible = presence.mode is Mode.INVISIBLE
        facts = Facts(same_user=True)
        if viewer != target:
            facts = await self._access.facts(viewer, target, invisible=invisible)
        [status] = await self._viewing.statuses(viewer, [target])
        return Explanation(
            judge(facts),
            facts,
            status,
            explained(presence, self._context.timings),
            must_verify=self._cluster.must_verify(shard),
            ends_wait=ends_wait,
        )

    async def users(
        self, viewer: str | None, wanted: Collection[Status], cursor: str | None, limit: int
    ) -> tuple[list[bytes], str | None]:
        """Return a page of the users in the store that have one of the `wanted` statuses for this viewer (None: by
        their true status): their statuses as JSON, and the next cursor (None: the end). A user that stays in the store
        while all pages are read is returned at least once."""
        shard, place = _parsed(cursor)
        for _ in range(PAGES):
            if shard >= self._context.engine.shards:
                return [], None
            try:
                part, place = await page_of(self._context.engine, shard, place, limit)
            except ValueError:
                raise _bad_cursor() from None
            if place is None:
                shard += 1
            if found := await self._viewing.statuses_of_records(viewer, part, wanted):
                return found, self._next(shard, place)
        return [], self._next(shard, place)

    def _next(self, shard: int, place: str | None) -> str | None:
        if shard >= self._context.engine.shards:
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
