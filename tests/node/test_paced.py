"""The order of viewers in paced delivery."""

from typing import Any

from herenow.node.delivery import paced
from herenow.node.delivery.paced import SLICE, PacedDelivery


class Named:
    def __init__(self, user):
        self.user = user


async def test_active_viewers_get_a_change_first_even_if_finding_them_among_all_viewers_takes_long(monkeypatch):
    """Every viewer that is checked takes one time slice."""
    told, slow = [], iter(range(1_000_000))
    viewers: list[Any] = [Named(f"{kind}{number}") for number in range(50) for kind in ("idle", "active")]
    crowd = PacedDelivery(
        lambda user: user.startswith("active"), lambda _person, found: told.extend(outbox.user for outbox, _ in found)
    )
    monkeypatch.setattr(paced, "_now", lambda: next(slow))
    star: Any = Named("star")
    crowd.add(star, viewers, b"", 20 * SLICE)
    crowd.close()
    monkeypatch.setattr(paced, "_now", lambda: 1_000_000)
    crowd._roll()
    crowd.close()
    assert len(told) == len(viewers)
    assert [user for user in told if user.startswith("active")] == told[:50]
