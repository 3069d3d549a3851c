"""Reads by users and services. All output passes `visibility.seen` and has the same bytes as the frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from herenow.core.model import Bucket, Presence, Status, View
from herenow.core.visibility import Facts, Kind, ViewScope, judge, seen, seen_by_oneself
from herenow.node.access import RelationCache
from herenow.node.context import Context
from herenow.node.delivery import Delivery, StatusCache
from herenow.node.records import Records
from herenow.wire.shapes import closing_as_of, self_body, status_body, with_as_of

_RANK = {Status.ONLINE: 0, Status.BUSY: 1, Status.AWAY: 2, Status.OFFLINE: 3}


class Views:
    def __init__(self, context: Context, delivery: Delivery, records: Records, access: RelationCache) -> None:
        self._people = context.people
        self._delivery = delivery
        self._records = records
        self._access = access
        self._bodies = StatusCache()

    async def statuses(self, viewer: str | None, users: Sequence[str]) -> list[bytes]:
        """Return the complete statuses (with as-of time) of these users as the viewer sees them, encoded, in order.
        `viewer` None: a service, which sees the true statuses. Users that may not be seen are not read: strangers and
        unknown users get the same answer in the same time."""
        sights = await self._sights(viewer, users)
        found = await self._read(users, sights)
        if not self._delivery.stale_shards:  # then all have the same as-of time
            closing, open_status = closing_as_of(self._delivery.as_of(0)), self._open_status
            return [
                open_status(user, sights[user], known, stale=False) + closing
                for user, known in zip(users, found, strict=True)
            ]
        shards = [self._people.shard_of(user) for user in users]
        return [
            with_as_of(
                self._open_status(user, sights[user], known, stale=self._delivery.is_stale(shard)),
                self._delivery.as_of(shard),
            )
            for user, known, shard in zip(users, found, shards, strict=True)
        ]

    async def _read(self, users: Sequence[str], sights: Mapping[str, ViewScope]) -> Sequence[tuple[Presence, bool]]:
        """Read the presence of each user, in order; an empty one for users that may not be seen (`sights`: view scopes
        by user). Returns (presence, True if certainly fresh) of each."""
        none = _NONE
        visible = [user for user in users if sights[user].kind is not none]
        found = await self._records.read(visible, hidden_users=_frozen(sights))
        if len(visible) == len(users):
            return found
        by_user = dict(zip(visible, found, strict=True))
        return [by_user.get(user, _UNSEEN) for user in users]

    async def statuses_of_records(
        self, viewer: str | None, records: Sequence[tuple[str, Presence]], wanted: Collection[Status]
    ) -> list[bytes]:
        """Return the complete statuses of those users whose status, as this viewer sees it, is among `wanted`, encoded.
        `records`: user ids and presences."""
        sights = await self._sights(viewer, [user for user, _ in records])
        found: list[bytes] = []
        for user, presence in records:
            view = seen(self._people.shown(user, presence), sights[user], self._delivery.today)
            if view.status in wanted:
                shard = self._people.shard_of(user)
                body = status_body(user, view, stale=self._delivery.is_stale(shard))
                found.append(with_as_of(body, self._delivery.as_of(shard)))
        return found

    async def me(self, user: str) -> bytes:
        return self_body(seen_by_oneself(await self._records.wait_decided(user)))

    async def presence(self, user: str) -> Presence:
        return await self._records.wait_decided(user)

    async def count(self, viewer: str) -> dict[str, int]:
        """Return the number of the viewer's contacts per status, as the viewer sees them."""
        counts: Counter[Status] = Counter(view.status for _, view in await self._contacts(viewer))
        return {status.word: counts[status] for status in _RANK}

    async def leaderboard(self, viewer: str, limit: int) -> list[bytes]:
        """Return the complete statuses of the viewer's first `limit` contacts, encoded, in this order: online, busy,
        away, each by id; then offline by last seen, by approximate last seen, never seen."""
        ranked = sorted(await self._contacts(viewer), key=_rank)
        return await self.statuses(viewer, [user for user, _ in ranked[:limit]])

    async def profile(self, user: str) -> tuple[bytes, int] | None:
        """Return the encoded status for the user's public profile, and the time (ms) as of which it is true. None: the
        user has no public profile. Raises `Unavailable` if that is unknown."""
        preferences = await self._access.preferences(user)
        if not preferences.public:
            return None
        sights = self._delivery.as_answered({user: judge(Facts(contact=True, target=preferences)).scope})
        [known] = await self._records.read([user], hidden_users=_frozen(sights))
        shard = self._people.shard_of(user)
        body = self._open_status(user, sights[user], known, stale=self._delivery.is_stale(shard))
        return body, self._delivery.as_of(shard)

    async def _contacts(self, viewer: str) -> list[tuple[str, View]]:
        contacts = await self._access.contacts(viewer)
        sights = await self._sights(viewer, contacts)
        found = await self._records.read(contacts, hidden_users=_frozen(sights))
        return [
            (user, seen(presence, sights[user], self._delivery.today))
            for user, (presence, _) in zip(contacts, found, strict=True)
        ]

    async def _sights(self, viewer: str | None, users: Sequence[str]) -> Mapping[str, ViewScope]:
        if viewer is None:
            return dict.fromkeys(users, ViewScope.TRUTH)
        return self._delivery.as_answered(await self._access.view_scopes(viewer, users))

    def _open_status(self, user: str, sight: ViewScope, known: tuple[Presence, bool], *, stale: bool) -> bytes:
        person, kind = self._people.find(user), sight.kind
        if person is not None and person.watchers.channels and kind is not _NONE:
            return self._delivery.body(person, sight)
        presence, fresh = known
        if kind is _FROZEN:  # shows nothing of the presence: a change of it needs no new body
            presence = _UNSEEN[0]
        return self._bodies.body(user, sight, presence, self._delivery.today, stale=stale or not fresh)


_UNSEEN = Presence(), True
_NONE, _FROZEN = Kind.NONE, Kind.FROZEN


def _frozen(sights: Mapping[str, ViewScope]) -> set[str]:
    """Return the users that are hidden from this viewer, whatever their record is. `sights`: the viewer's view scopes
    by user."""
    frozen = _FROZEN
    return {user for user, sight in sights.items() if sight.kind is frozen}


def _rank(contact: tuple[str, View]) -> tuple[int, bool, int, int, str]:
    """Return the sort key of a contact in `leaderboard`: by status, then exact last seens, then approximate ones, then
    never seen. Hidden values do not influence the order."""
    user, view = contact
    bucket = len(Bucket) if view.bucket is None else int(view.bucket)
    return _RANK[view.status], view.last_seen is None, -(view.last_seen or 0), bucket, user
