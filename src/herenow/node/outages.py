"""Shards that could not be written for a while: from when until when, and how long ends wait after that.

A session that could not be committed during an outage must come before an end that fell due meanwhile, also when another
node holds it. So after an outage every node first commits the sessions that it holds; a third of a lease later ends are
decided. Ends wait too while the lease of another node is late: that node may hold a session that it cannot commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from herenow.errors import Unavailable
from herenow.kit.clock import Clock

REMEMBER = 2.0
"""Leases for which an outage is remembered after its end: what fell due during it has been decided by then."""


class EndsWait(Unavailable):
    """A decision would show a user offline while ends wait: it is made later."""


@dataclass(slots=True, eq=False)
class Outages:
    _clock: Clock
    _node_lease: float
    _failing: dict[int, int] = field(default_factory=dict)
    """Shard → time of the first write that failed since the last one that succeeded."""
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Shard → begin and end of its last outage."""
    _wait_until: dict[int, float] = field(default_factory=dict)
    """Shard → monotonic time until which ends wait there."""
    _all_wait_until: float = 0.0
    _suspected: bool = False
    _listeners: list[Callable[[Collection[int]], None]] = field(default_factory=list)

    def subscribe(self, on_begin: Callable[[Collection[int]], None]) -> None:
        """`on_begin` is called with the shards whose outage begins."""
        self._listeners.append(on_begin)

    def suspect_all(self) -> None:
        """The lease could not be renewed: the next probe finds out which shards cannot be written."""
        self._suspected = True

    def to_probe(self, shards: int) -> Collection[int]:
        """Of so many shards, those that must be written to find out whether they can be."""
        suspected, self._suspected = self._suspected, False
        return range(shards) if suspected else tuple(self._failing)

    def on_failure(self, shards: Iterable[int]) -> None:
        """A write to these shards failed, or may have."""
        begins = [shard for shard in shards if shard not in self._failing]
        self._failing |= dict.fromkeys(begins, self._clock.now())
        if begins:
            for listener in self._listeners:
                listener(begins)

    def on_success(self, shard: int) -> bool:
        """The shard took a write. True: that ends an outage, so commit what is held there."""
        since = self._failing.pop(shard, None)
        if since is None:
            return False
        self._last[shard] = since, self._clock.now()
        self._wait_until[shard] = self._clock.monotonic() + self._node_lease / 3
        return True

    def hold_ends(self) -> None:
        """In all shards, for a third of a lease: another node's lease is late."""
        self._all_wait_until = self._clock.monotonic() + self._node_lease / 3

    @property
    def failing(self) -> Collection[int]:
        return self._failing.keys()

    def ends_wait(self, shard: int, *, requested: bool = False) -> bool:
        """`requested`: the end was requested (a sign-out). It waits for an outage of the shard, not for a late node: that
        may take longer than a caller waits."""
        until = max(self._wait_until.get(shard, 0.0), 0.0 if requested else self._all_wait_until)
        return shard in self._failing or self._clock.monotonic() < until

    def of(self, shard: int) -> tuple[int, int] | None:
        """The shard's outage: the present one, or the last one for as long as it matters."""
        if not self._failing and not self._last:
            return None
        now = self._clock.now()
        if (since := self._failing.get(shard)) is not None:
            return since, now
        last = self._last.get(shard)
        if last is not None and now - last[1] > REMEMBER * self._node_lease * 1000:
            del self._last[shard], self._wait_until[shard]
            return None
        return last

    @property
    def shards_waiting(self) -> int:
        """Number of shards in which ends wait, besides those of a late lease."""
        now = self._clock.monotonic()
        return len(self._failing.keys() | {shard for shard, until in self._wait_until.items() if now < until})
