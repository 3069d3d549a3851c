"""Shards that could not be written for a while: from when until when, and how long ends wait after that.

An end is a decision that shows a user offline. A session that could not be committed during an outage must come before an
end that fell due meanwhile, also when another node holds the session. So after an outage every node first commits the
sessions that it holds; a third of a lease later ends are decided. Ends wait too while the lease of another node is late:
that node may hold a session that it cannot commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from herenow.errors import Unavailable
from herenow.kit.clock import Clock

REMEMBER = 2.0
"""Leases for which an outage is remembered after it: users that fell due during the outage have been decided by then."""


class EndsWait(Unavailable):
    """A decision that would show a user offline must wait (see above); it is made later."""


@dataclass(slots=True, eq=False)
class Outages:
    _clock: Clock
    _node_lease: float
    _failing: dict[int, int] = field(default_factory=dict)
    """Shard → time (ms) of the first write that failed since the last one that succeeded."""
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Shard → begin and end (ms) of its last outage."""
    _wait_until: dict[int, float] = field(default_factory=dict)
    """Shard → monotonic time until which ends wait there."""
    _all_wait_until: float = 0.0
    _suspected: bool = False
    _listeners: list[Callable[[Collection[int]], None]] = field(default_factory=list)

    def subscribe(self, on_begin: Callable[[Collection[int]], None]) -> None:
        """Register a function that is called with the shards in which an outage begins."""
        self._listeners.append(on_begin)

    def suspect_all(self) -> None:
        """Let the next `to_probe` return all shards. Call when the lease could not be renewed: it is then unknown which
        shards can be written."""
        self._suspected = True

    def to_probe(self, shards: int) -> Collection[int]:
        """Return the shards that need a test write to find out whether they can be written: the failing ones, or all
        after `suspect_all`. `shards`: how many shards the store has."""
        suspected, self._suspected = self._suspected, False
        return range(shards) if suspected else tuple(self._failing)

    def on_failure(self, shards: Iterable[int]) -> None:
        """Record that a write to these shards failed or got no answer. In a shard without an outage one begins, and the
        subscribers are called."""
        begins = [shard for shard in shards if shard not in self._failing]
        self._failing |= dict.fromkeys(begins, self._clock.now())
        if begins:
            for listener in self._listeners:
                listener(begins)

    def on_success(self, shard: int) -> bool:
        """Record that the shard accepted a write. Returns True if that ends an outage: then commit the sessions that
        this node holds there."""
        since = self._failing.pop(shard, None)
        if since is None:
            return False
        self._last[shard] = since, self._clock.now()
        self._wait_until[shard] = self._clock.monotonic() + self._node_lease / 3
        return True

    def hold_ends(self) -> None:
        """Postpone decisions that show a user offline, in all shards, for a third of a lease. Call when the lease of
        another node is late: that node may hold sessions that it cannot commit."""
        self._all_wait_until = self._clock.monotonic() + self._node_lease / 3

    @property
    def failing(self) -> Collection[int]:
        return self._failing.keys()

    def ends_wait(self, shard: int, *, requested: bool = False) -> bool:
        """True if decisions that show a user of this shard offline must wait: during an outage of the shard, shortly
        after it, or while the lease of another node is late. `requested`: the user asked for it (a sign-out). It does
        not wait for a late lease, because that may take longer than the caller waits."""
        until = max(self._wait_until.get(shard, 0.0), 0.0 if requested else self._all_wait_until)
        return shard in self._failing or self._clock.monotonic() < until

    def of(self, shard: int) -> tuple[int, int] | None:
        """Return begin and end (ms) of the shard's outage: of the present one, with now as its end, or of the last one
        if that ended less than `REMEMBER` leases ago. None: neither."""
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
        """Number of shards in which decisions that show a user offline wait because of an outage. Waiting for another
        node's late lease does not count."""
        now = self._clock.monotonic()
        return len(self._failing.keys() | {shard for shard, until in self._wait_until.items() if now < until})
