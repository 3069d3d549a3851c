"""Checks that views, records, counts and the ledger agree with the truth and with each other.

After a fault has healed only some of it can be checked; after a long time without events, all of it.
"""

from __future__ import annotations

from collections import Counter

from herenow.core.model import UNLEASED, Mode, Presence, Session, Status, public
from herenow.core.settle import settle
from herenow.ports import Remembered
from herenow_testing.checker.last_seen import LastSeen
from herenow_testing.checker.notes import Notes, seen, whom
from herenow_testing.world.scene import Shown
from herenow_testing.world.truth import Stay


class Agreement:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._last_seen = LastSeen(notes)

    # When a fault has healed

    def differences(self) -> list[str]:
        """List the current differences between what viewers see, the records in the store and what clients did. To wait
        for the end of a fault, call this until it returns none."""
        stored = self._notes.scene.everybody_stored()
        found: list[str] = []
        for user in sorted(self._notes.stays.keys() - self._notes.viewers):
            record = stored.get(user)
            found += self._wrong_in_record(user, Presence() if record is None else record)
            view = seen(public(Presence() if record is None else record))
            for client in self._notes.scene.clients:
                if client.user in self._notes.viewers:
                    last = None if client.link is None else self._notes.last.get((client.link, user))
                    if last is None or last[0].stale or (last[0].status, last[0].custom) != view:
                        found.append(f"{whom(client)} sees {last and last[0]}, the record says {view}")
        return found

    def _wrong_in_record(self, user: str, record: Presence) -> list[str]:
        """List the differences between a user's record and what the user's devices did."""
        now, stays = self._notes.scene.now, self._notes.stays[user]
        leased = {session.device for session in record.sessions if session.holder != UNLEASED}
        live = {session.device for session in record.sessions if session.live}
        here = {stay.device for stay in stays if self._must_be_known(stay, now)}
        gone = leased - {stay.device for stay in stays if stay.ended_at is None or self._may_be_left(stay, now)}
        found = [f"{user} {device} is connected, the record says {record}" for device in sorted(here - live)]
        found += [f"{user} {device} has gone, the record says {record}" for device in sorted(gone)]
        hidden = Mode.INVISIBLE in self._notes.modes[user].possible or record.mode is Mode.INVISIBLE
        if here and not hidden and public(record).status is Status.OFFLINE:
            found.append(f"{user} is here, the record says {record}")
        return found

    def _must_be_known(self, stay: Stay, now: int) -> bool:
        if stay.by_rest or stay.ended_at is not None or stay.greeted_at is None or stay.how:
            return False
        return now > stay.greeted_at + self._notes.bounds.late

    def _may_be_left(self, stay: Stay, now: int) -> bool:
        return now <= self._notes.bounds.gone(stay) + self._notes.scene.lateness(stay.ended_at or 0, now)

    @property
    def quiet_at(self) -> int:
        """The time (epoch ms) from which no record may contain any of the sessions that have ended so far."""
        ended = [stay for stays in self._notes.stays.values() for stay in stays if stay.by_rest or stay.ended_at]
        return max(map(self._notes.bounds.gone, ended), default=0)

    # When everything has healed

    def healed(self) -> None:
        """Check that viewers see no connected user as offline, unless invisible, and none as stale. Call this when
        `Bounds.healed` has passed since the last fault."""
        for client in self._notes.scene.clients:
            link = client.link
            for user, stays in self._notes.stays.items():
                last = None if link is None else self._notes.last.get((link, user))
                if last is None or user in self._notes.viewers:
                    continue
                here = any(stay.ended_at is None and stay.greeted_at and not stay.by_rest for stay in stays)
                hidden = Mode.INVISIBLE in self._notes.modes[user].possible
                if last[0].stale or (here and not hidden and last[0].status == "offline"):
                    self._notes.wrong(f"{whom(client)} sees {last[0]} though everything has healed")

    async def conclude(self) -> None:
        """Check that records, views, user counts and the ledger agree with what clients did. Call this after a long
        time without faults and client actions."""
        stored = self._notes.scene.everybody_stored()
        for user in sorted(self._notes.stays):
            if user not in self._notes.viewers:
                self._conclude_record(user, stored.get(user))
        await self._conclude_views(stored)
        await self._conclude_counts(stored)
        await self._conclude_ledger(stored)

    def _conclude_record(self, user: str, record: Presence | None) -> None:
        here = {stay.device: stay for stay in self._notes.stays[user] if stay.ended_at is None and not stay.by_rest}
        sessions = () if record is None else record.sessions
        leased = {session.device: session for session in sessions if session.holder != UNLEASED}
        for device in sorted(here.keys() - leased.keys()):
            self._notes.wrong(f"{user} {device} is connected to {here[device].node} but not in the record: {record}")
        for device in sorted(leased.keys() - here.keys()):
            self._notes.wrong(f"{user} {device} is in the record but not connected: {leased[device]}")
        for device in sorted(leased.keys() & here.keys()):
            self._conclude_session(user, leased[device], here[device])
        if any(session.holder == UNLEASED for session in sessions):
            self._notes.wrong(f"{user} has a session by REST though no beat came for long: {record}")
        if record is not None:
            self._conclude_choices(user, record)

    def _conclude_session(self, user: str, session: Session, stay: Stay) -> None:
        node = self._notes.scene.nodes.get(stay.node)
        if not session.live or node is None or session.holder not in node.epochs:
            self._notes.wrong(f"{user} {session.device} is connected to {stay.node}, the record has {session}")

    def _conclude_choices(self, user: str, record: Presence) -> None:
        if record.mode not in self._notes.modes[user].possible:
            self._notes.wrong(f"{user} chose one of {self._notes.modes[user].possible}, the record has {record.mode!r}")
        text = None if record.custom is None else record.custom.text
        if text not in self._notes.texts[user].possible:
            self._notes.wrong(f"{user} said one of {self._notes.texts[user].possible}, the record has {text}")
        if settle(record, self._notes.scene.now, self._notes.bounds.timings).presence is not record:
            self._notes.wrong(f"{user}'s record is not at rest: {record}")

    async def _conclude_views(self, stored: dict[str, Presence]) -> None:
        users = sorted(self._notes.stays.keys() - self._notes.viewers)
        for node in self._notes.scene.nodes.values():
            for viewer in sorted(self._notes.viewers):
                for shown in await node.answers(viewer, users):
                    await self._compare(f"{node.name} answers {viewer}", shown, stored.get(shown.user))
        for client in self._notes.scene.clients:
            if client.user in self._notes.viewers and client.link is not None:
                for user in users:
                    last = self._notes.last.get((client.link, user))
                    if last is None:
                        self._notes.wrong(f"{whom(client)} was shown nothing of {user}")
                    else:
                        await self._compare(f"{whom(client)} sees", last[0], stored.get(user))

    async def _compare(self, label: str, shown: Shown, record: Presence | None) -> None:
        self._notes.counts["compared"] += 1
        view = public(Presence()) if record is None else public(record)
        text = None if view.custom is None else view.custom.text
        if (
            shown.stale
            or shown.status != view.status.word
            or shown.custom != text
            or (record is not None and (shown.since, shown.last_seen) != (view.since, view.last_seen))
        ):
            self._notes.wrong(f"{label} {shown}, the record says {view}")
        elif record is None:
            known = (await self._notes.scene.remembered([shown.user])).get(shown.user, Remembered())
            if shown.last_seen != known.last_seen:
                self._notes.wrong(f"{label} {shown}, the ledger says {known}")

    async def _conclude_counts(self, stored: dict[str, Presence]) -> None:
        truly = Counter(public(presence).status.word for presence in stored.values())
        truly.pop(Status.OFFLINE.word, None)
        for node in self._notes.scene.nodes.values():
            counts = await node.counts()
            if counts.users != truly:
                self._notes.wrong(f"{node.name} counts {counts.users}, the store has {truly}")
            if counts.connections != counts.sockets:
                self._notes.wrong(f"{node.name} counts {counts.connections} connections of {counts.sockets}")

    async def _conclude_ledger(self, stored: dict[str, Presence]) -> None:
        users = sorted((stored.keys() | self._notes.stays.keys() | self._notes.modes.keys()) - self._notes.viewers)
        ledger = await self._notes.scene.remembered(users)
        for user in users:
            known = ledger.get(user, Remembered())
            self._conclude_last_seen(user, stored.get(user), known)
            self._conclude_chosen(user, stored.get(user), known)

    def _conclude_last_seen(self, user: str, record: Presence | None, known: Remembered) -> None:
        saved = known.last_seen or 0
        if record is not None and saved < (record.last_seen or 0):
            self._notes.wrong(f"{user} was last seen at {record.last_seen}, the ledger has {saved}")
        if user in self._notes.stays:
            self._notes.counts["last seen"] += 1
            first, last = self._last_seen.between(user)
            if not first <= saved <= last:
                self._notes.wrong(f"{user} was last seen between {first} and {last}, the ledger has {saved}")

    def _conclude_chosen(self, user: str, record: Presence | None, known: Remembered) -> None:
        """Check a user's mode and custom status at the end of a run. The ledger (`known`) and the store (`record`) must
        have the same values: those that were last confirmed to the user, or that were requested after that."""
        mode, text = Mode.AUTO, None
        if known.choice is not None:
            mode = known.choice.mode
            text = None if known.choice.custom is None else known.choice.custom.text
        self._notes.counts["choices"] += len(self._notes.modes[user].ever) + len(self._notes.texts[user].ever)
        if mode not in self._notes.modes[user].possible or text not in self._notes.texts[user].possible:
            chosen = self._notes.modes[user].possible, self._notes.texts[user].possible
            self._notes.wrong(f"{user} chose one of {chosen}, the ledger has {mode!r}, {text}")
        if record is not None:
            stored = record.mode, None if record.custom is None else record.custom.text
            if stored != (mode, text):
                self._notes.wrong(f"{user} has {stored} in the store, {(mode, text)} in the ledger")
