"""What is known of each person: the newest value, and whether it is still known to be true.

Presence is state, not a log, so merging is a rule about two values: the one with the later `as_of` stays. That holds
within one connection, whose server never goes back. The next connection may lead to another node, whose clock is a
little behind: its first fresh word replaces what was carried over, whatever the stamps say; only a word that is stale
itself has to be newer. Pure: no timer, no socket. The rules are rows in `spec/vectors/roster.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from herenow.client.presence import Change, Presence


class Roster:
    def __init__(self) -> None:
        self._entries: dict[str, tuple[Presence, int]] = {}
        """And the number of the connection that said it."""
        self._connection = 0

    def get(self, user: str) -> Presence:
        known = self._entries.get(user)
        return Presence(user_id=user) if known is None else known[0]

    def __contains__(self, user: str) -> bool:
        return user in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def take(self, said: Presence) -> Change | None:
        """The server said this; what changed for who looks, if anything did."""
        known = self._entries.get(said.user_id)
        if known is not None and said.as_of < known[0].as_of:
            carried = known[1] != self._connection
            if not carried or said.stale:
                return None
        return self._put(said)

    def deny(self, user: str, reason: str) -> Change | None:
        """The server would not say. Without a relation that looks like offline, as it does by REST."""
        status = "offline" if reason == "not_mutual_followers" else "unknown"
        return self._put(Presence(user_id=user, status=status, denied=reason))

    def lost(self) -> None:
        """The connection is gone: what it said is carried over until the next one speaks."""
        self._connection += 1

    def age(self) -> list[Change]:
        """It has been gone for long enough that what it said must be called stale."""
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
