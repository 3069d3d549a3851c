"""A cached status body always equals a newly encoded one."""

import pytest

from herenow.core.model import Presence, Status
from herenow.core.visibility import Kind, ViewScope, seen
from herenow.node.delivery import status_cache
from herenow.node.delivery.status_cache import StatusCache
from herenow.wire.shapes import status_body

DAY = 20_000
HERE = Presence(status=Status.ONLINE, since=5)
GONE = Presence(last_seen=DAY * 86_400_000)
SIGHTS = [
    ViewScope.TRUTH,
    ViewScope.FULL,
    ViewScope.BLURRED,
    ViewScope.NONE,
    ViewScope(Kind.FROZEN, last_seen=7),
    ViewScope(Kind.FROZEN, last_seen=8),
    ViewScope(Kind.FROZEN, blurred=True, last_seen=7),
]


def anew(user, sight, presence, today, *, stale):
    return status_body(user, seen(presence, sight, today), stale=stale)


def test_the_status_cache_returns_to_every_viewer_the_status_of_their_own_view():
    kept = StatusCache()
    asked = [
        ((user, sight, presence, today), stale)
        for user in ("ana", "bob")
        for sight in SIGHTS
        for presence in (HERE, GONE)
        for today in (DAY, DAY + 40)
        for stale in (False, True)
    ]
    for each, stale in [*asked, *asked[::-1], *asked[::3]]:
        assert kept.body(*each, stale=stale) == anew(*each, stale=stale)


@pytest.mark.parametrize("sight", [ViewScope.FULL, ViewScope(Kind.SHOWN), ViewScope(Kind.FROZEN, last_seen=7)])
def test_the_status_cache_does_not_encode_an_unchanged_view_again(sight):
    kept = StatusCache()
    first = kept.body("ana", sight, HERE, DAY, stale=False)
    kept.body("ana", ViewScope.TRUTH, HERE, DAY, stale=False)
    again = ViewScope(sight.kind, blurred=sight.blurred, last_seen=sight.last_seen)
    assert kept.body("ana", again, HERE, DAY, stale=False) is first


def test_the_status_cache_is_bounded_by_users_and_by_views_per_user(monkeypatch):
    monkeypatch.setattr(status_cache, "USERS", 3)
    kept = StatusCache()
    first = kept.body("u0", ViewScope.FULL, HERE, DAY, stale=False)
    for number in range(10):
        kept.body(f"u{number}", ViewScope.FULL, HERE, DAY, stale=False)
    for last_seen in range(10):
        kept.body("u9", ViewScope(Kind.FROZEN, last_seen=last_seen), HERE, DAY, stale=False)
    assert len(kept) == 3
    assert kept.body("u0", ViewScope.FULL, HERE, DAY, stale=False) is not first
    assert max(len(each) for each in kept._kept.values()) == status_cache.SIGHTS
