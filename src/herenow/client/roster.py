"""The last known presence of each user, and whether it is stale.

Within one connection the presence with the later `as_of` wins. The next connection may lead to another node whose clock
is slightly behind: there the first presence that is not stale replaces the one of the previous connection whatever its
`as_of`; a stale one must be newer. Pure: no timer, no socket. Tested by `spec/vectors/known-statuses.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from herenow.client.presence import Change, Presence


class Roster:
    def __init__(self) -> None:
        self._entries: dict[str, tuple[Presence, int]] = {}
        """User → last presence, and the number of the connection that it came from."""
        self._connection = 0

    def get(self, user: str) -> Presence:
        known = self._entries.get(user)
        return Presence(user_id=user) if known is None else known[0]

    def __contains__(self, user: str) -> bool:
        return user in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def take(self, said: Presence) -> Change | None:
        """Store a presence that the server sent, unless the known one is newer. Returns the change to report; None if
        nothing visible changed."""
        known = self._entries.get(said.user_id)
        if known is not None and said.as_of < known[0].as_of:
            carried = known[1] != self._connection
            if not carried or said.stale:
                return None
        return self._put(said)

    def deny(self, user: str, reason: str) -> Change | None:
        """Record that the server refused the subscription to a user. With the reason `not_mutual_followers` the user is
        shown as offline, as REST does; with others as unknown. Returns the change to report, if any."""
        status = "offline" if reason == "not_mutual_followers" else "unknown"
        return self._put(Presence(user_id=user, status=status, denied=reason))

    def lost(self) -> None:
        """Record that the connection has ended. Its presences are kept until the next connection sends newer ones."""
        self._connection += 1

    def age(self) -> list[Change]:
        """Flag all presences of ended connections as stale; returns the changes."""
        changes: list[Change] = []
        for user, (before, connection) in self._entries.items():
            if connection == self._connection or before.stale:
                continue
            now = replace(before, stale=True)
            self._entries[user] = (now, connection)
            changes.append(Change(now, before))
        return changes

    def forget(self, user: str) -> None:
        self._entries.pop(user, None)

    def _put(self, now: Presence) -> Change | None:
        known = self._entries.get(now.user_id)
        before = None if known is None else known[0]
        self._entries[now.user_id] = (now, self._connection)
        if before is not None and replace(before, as_of=0) == replace(now, as_of=0):
            return None
        return Change(now, before)
