"""Checks of each status when a viewer receives it: true, and in order."""

from __future__ import annotations

from herenow.core.model import Mode
from herenow.node.access.relation_cache import TRUST
from herenow_testing.checker.last_seen import LastSeen
from herenow_testing.checker.notes import Notes
from herenow_testing.world.scene import Device, Shown, Way
from herenow_testing.world.truth import Stay


class Showing:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._last_seen = LastSeen(notes)
        self._newest_text: dict[tuple[Way, str], int] = {}

    def shown(self, client: Device, shown: Shown) -> None:
        link = client.link
        if link is None or client.user not in self._notes.viewers or shown.user in self._notes.viewers:
            return
        self._notes.counts["shown"] += 1
        self._check_order(client, link, shown)
        self._check_invented(client, shown)
        if shown.status == "offline":
            self._check_offline(client, shown)
            if not (shown.answer or shown.stale or self._is_blind(client, shown)):
                self._check_last_seen(client, shown)
        else:
            self._check_hidden(client, shown)

    def typing(self, client: Device, user: str) -> None:
        self._notes.counts["typing"] += 1
        since, now = self._notes.hidden_since.get(user), self._notes.scene.now
        if since is not None and now > since + self._notes.late(since, now):
            self._notes.problems.append(
                f"{now} hidden: {client.user} was told that {user} types, who is invisible since {since}"
            )

    def _check_order(self, client: Device, link: Way, shown: Shown) -> None:
        version = link.node.version(shown.user)
        before = self._notes.last.get((link, shown.user))
        self._notes.last[link, shown.user] = shown, version
        if before is not None:
            if not shown.answer and shown.value == before[0].value:
                self._notes.problem("equal", client, shown, "was pushed twice in a row")
            if version < before[1]:
                self._notes.problem("older", client, shown, f"is of version {version}, after {before[1]}")
            if shown.as_of < before[0].as_of:
                self._notes.problem("older", client, shown, f"is as of {shown.as_of}, after {before[0].as_of}")
        if shown.custom is not None:
            newest = self._newest_text.get((link, shown.user), 0)
            if int(shown.custom) < newest:
                self._notes.problem("older", client, shown, f"says {shown.custom} after {newest}")
            self._newest_text[link, shown.user] = max(newest, int(shown.custom))

    def _check_invented(self, client: Device, shown: Shown) -> None:
        if shown.status == "busy" and not any(mode is Mode.BUSY for _, mode in self._notes.modes[shown.user].ever):
            self._notes.problem("invented", client, shown, "was never busy")
        texts = self._notes.texts[shown.user].ever
        if shown.custom is not None and not any(text == shown.custom for _, text in texts):
            self._notes.problem("invented", client, shown, f"never said {shown.custom}")

    def _check_offline(self, client: Device, shown: Shown) -> None:
        """Check that a user is not shown as offline during a session that all viewers must know of, or during its
        grace. A stale status is not checked."""
        now = shown.at
        if shown.stale or self._may_be_hidden(shown.user, now) or self._is_blind(client, shown):
            return
        for stay in self._notes.stays[shown.user]:
            elsewhere = client.link is None or client.link.node.name != stay.node
            if self._is_solid(stay, now) and not (elsewhere and self._excused(stay, now)):
                how = f"{stay.device} on {stay.node} since {stay.opened_at}"
                if stay.ended_at is not None:
                    how += f", {stay.how} {now - stay.ended_at} ms ago"
                self._notes.problem("false offline", client, shown, f"is here: {how}")
                return

    def _check_last_seen(self, client: Device, shown: Shown) -> None:
        self._notes.counts["last seen"] += 1
        first, last = self._last_seen.between(shown.user, to=client)
        if not first <= (shown.last_seen or 0) <= last:
            self._notes.problem("last seen", client, shown, f"was last seen between {first} and {last}")

    def _check_hidden(self, client: Device, shown: Shown) -> None:
        since = self._notes.hidden_since.get(shown.user)
        if since is not None and shown.at > since + self._notes.late(since, shown.at):
            self._notes.problem("hidden", client, shown, f"is invisible since {since}")

    def _is_blind(self, client: Device, shown: Shown) -> bool:
        """True if the viewer may be shown all users as offline without last seen: the ledger is unavailable to the
        node, and either the viewer connected after that began, or the cached relations are older than `TRUST`."""
        if shown.last_seen is not None:
            return False
        came = self._notes.open.get(client)
        return any(
            t.blinds
            and t.begin <= shown.at <= self._notes.until(t, shown.at)
            and (came is None or came.opened_at >= t.begin or shown.at - t.begin > TRUST * 1000)
            for t in self._notes.troubles
        )

    def _is_solid(self, stay: Stay, now: int) -> bool:
        """True if this session forbids showing the user as offline: all viewers must know of it, and its grace is not
        over. False if it ended while its node was partitioned: the node may have been treated as dead earlier, and the
        grace began then."""
        if stay.greeted_at is None or stay.signed_out:
            return False
        if stay.ended_at is not None and any(
            t.cuts and t.node in (stay.node, None) and t.begin <= stay.ended_at <= (t.end or now)
            for t in self._notes.troubles
        ):
            return False
        if not self._notes.is_known(stay):
            return False
        if stay.by_rest:
            return now < stay.seen_at + self._notes.bounds.rest
        return stay.ended_at is None or now < stay.ended_at + self._notes.bounds.timings.grace - 500

    def _excused(self, stay: Stay, now: int) -> bool:
        """True if the node of this session was partitioned so long that other nodes had to treat it as dead, and that
        is not healed yet. Only faults with `cuts` count: a killed node also closes its sockets; faults of ledger or
        viewers excuse nothing."""
        spans = sorted(
            (t.begin, t.end or now)
            for t in self._notes.troubles
            if t.cuts and t.node in (stay.node, None) and (t.healed_at is None or now <= t.healed_at)
        )
        merged: list[list[int]] = []
        for begin, end in spans:
            if merged and begin - merged[-1][1] < self._notes.bounds.lease // 2:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return any(
            end - begin >= self._notes.bounds.cut_off and now < end + self._notes.healing(end, now)
            for begin, end in merged
        )

    def _may_be_hidden(self, user: str, now: int) -> bool:
        """True if the user may be invisible, or may have been so recently that viewers may still see the user
        offline."""
        if Mode.INVISIBLE in self._notes.modes[user].possible:
            return True
        asked = [at for at, mode in self._notes.modes[user].ever if mode is Mode.INVISIBLE]
        unhidden = [at for at, mode in self._notes.modes[user].ever if mode is not Mode.INVISIBLE]
        return bool(asked) and (not unhidden or now < max(unhidden) + self._notes.late(max(unhidden), now))
