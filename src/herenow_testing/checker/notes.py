"""Records what clients did and received and which faults were active, and computes the delays that faults excuse.

This module does not check anything itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from herenow.core.model import Mode, View
from herenow_testing.world.scene import Device, Scene, Shown, Way, Witness
from herenow_testing.world.truth import Bounds, Chosen, Stay, Trouble


class Notes(Witness):
    def __init__(self, scene: Scene, viewers: Iterable[str]) -> None:
        self.scene = scene
        self.bounds = Bounds(scene.timings, scene.lease, scene.late)
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        """Number of checks by kind, so that a test can assert that they happened."""
        self.longest_ghost = 0
        """The longest time in ms that a user was shown as not offline after the last session ended."""
        self.viewers = set(viewers)
        self.stays: dict[str, list[Stay]] = defaultdict(list)
        self.open: dict[Device, Stay] = {}
        self._rest: dict[tuple[str, str], Stay] = {}
        self.modes: dict[str, Chosen] = defaultdict(lambda: Chosen([Mode.AUTO]))
        self.texts: dict[str, Chosen] = defaultdict(lambda: Chosen([None]))
        self.hidden_since: dict[str, int] = {}
        self.last: dict[tuple[Way, str], tuple[Shown, int]] = {}
        """(socket, user) → the last status received, and the version of the record that the node held."""
        self.troubles: list[Trouble] = []

    # Actions of clients

    def opened(self, client: Device) -> None:
        assert client.link is not None
        node = client.link.node
        now = self.scene.now
        stay = Stay(client.user, client.device, node.name, now, now)
        stay.beside_half_open = any(
            (before.device, before.node) == (stay.device, stay.node) and self._lingers(before)
            for before in self.stays[client.user]
        )
        self.stays[client.user].append(stay)
        self.open[client] = stay

    def _lingers(self, stay: Stay) -> bool:
        """True if the socket of this session ended, but its node may still hold it as half-open, until it times out."""
        if stay.ended_at is None or not (stay.how == "vanished" or stay.beside_half_open):
            return False
        now = self.scene.now
        return now <= stay.ended_at + self.bounds.timings.dead_after + self.late(stay.ended_at, now)

    def greeted(self, client: Device) -> None:
        stay = self.open.get(client)
        if stay is not None and stay.greeted_at is None:
            stay.greeted_at = self.scene.now

    def lived(self, client: Device) -> None:
        self.open[client].seen_at = self.scene.now

    def ended(self, client: Device, how: str) -> None:
        stay = self.open.pop(client, None)
        if stay is not None:
            stay.ended_at = self.scene.now
            stay.how = stay.how or how

    def signs_out(self, user: str, device: str) -> None:
        """Record that the sign-out of a device was requested: from now on the device may be signed in or out."""
        for stay in self.stays[user]:
            if stay.device == device and (stay.ended_at is None or self.in_grace(stay, self.scene.now)):
                stay.how = "signed out"
                stay.signed_at = self.scene.now
                stay.asked_out = stay.greeted_at is not None
        self._rest.pop((user, device), None)

    def is_signed_out(self, user: str, device: str) -> None:
        """Record that the sign-out of a device was confirmed."""
        for stay in self.stays[user]:
            if stay.device == device and stay.asked_out and stay.out_at is None:
                stay.out_at = self.scene.now

    def beat(self, user: str, device: str, node: str, asked_at: int | None = None) -> None:
        """Record that a REST heartbeat sent at `asked_at` (None: now) was accepted now. If the previous one may have
        expired, this begins another session, because viewers may still receive that the device was gone."""
        now = self.scene.now
        at = now if asked_at is None else asked_at
        stay = self._rest.get((user, device))
        if stay is None or now >= stay.seen_at + self.bounds.rest:
            stay = self._rest[user, device] = Stay(user, device, node, at, at, by_rest=True, greeted_at=now)
            self.stays[user].append(stay)
        stay.seen_at, stay.node = at, node

    def may_have_beaten(self, user: str, device: str, node: str) -> None:
        """Record that a REST heartbeat got no response: it may have been accepted, or be accepted later."""
        stay = Stay(user, device, node, self.scene.now, self.scene.now, by_rest=True)
        self.stays[user].append(stay)

    def asks_mode(self, user: str, mode: Mode) -> None:
        self.modes[user].asked(self.scene.now, mode)
        if mode is not Mode.INVISIBLE:
            self.hidden_since.pop(user, None)

    def has_mode(self, user: str, mode: Mode) -> None:
        modes = self.modes[user]
        modes.answered(self.scene.now, mode)
        if modes.possible == [Mode.INVISIBLE]:
            self.hidden_since.setdefault(user, self.scene.now)

    def asks_text(self, user: str, number: int) -> None:
        self.texts[user].asked(self.scene.now, str(number))

    def has_text(self, user: str, number: int) -> None:
        self.texts[user].answered(self.scene.now, str(number))

    # Faults

    def trouble(self, kind: str, node: str | None = None, **what: bool) -> Trouble:
        """Record the start of a fault and return it. `node` None: it affects all nodes. `what`: the boolean fields of
        `Trouble`, which name the effects of the fault; only these are excused."""
        trouble = Trouble(kind, node, self.scene.now, **what)
        self.troubles.append(trouble)
        self.counts[kind] += 1
        return trouble

    def over(self, trouble: Trouble) -> None:
        trouble.end = self.scene.now

    @property
    def unhealed(self) -> list[Trouble]:
        """Faults that have ended, but for which `all_right` was not called yet."""
        return [t for t in self.troubles if t.end is not None and t.healed_at is None]

    def all_right(self) -> None:
        """Record that the test saw every view correct again: from now on the faults that have ended excuse nothing."""
        for trouble in self.unhealed:
            trouble.healed_at = self.scene.now

    # Allowed delays

    def is_known(self, stay: Stay, to: Device | None = None) -> bool:
        """True if enough time has passed that all viewers (or only the viewer `to`) must know of the session. A fault
        of the session's node after it confirmed the session does not delay viewers on other nodes, because the session
        is in the store by then. But if the store then loses it, the session is back only when that node has healed:

            n1   accepts a heartbeat ─ 200     n1 is late to offer it again ─▶ online
            store               └─ fails over: lost ┘
            n2                                   recovered: offline, never seen
        """
        if stay.greeted_at is None:
            return False
        now, begin = self.scene.now, stay.greeted_at
        place = None if to is None or to.link is None else to.link.node.name
        return now - begin >= self.bounds.late + self.scene.lateness(begin, now) + self.troubled(
            begin, now, place=place
        )

    def in_grace(self, stay: Stay, now: int) -> bool:
        return stay.ended_at is not None and now < self.bounds.gone(stay)

    def late(self, begin: int, now: int) -> int:
        return self.bounds.late + self.troubled(begin, now) + self.scene.lateness(begin, now)

    def until(self, trouble: Trouble, now: int) -> int:
        """The time (epoch ms) until which a fault excuses delays."""
        if trouble.healed_at is not None:
            return trouble.healed_at
        end = trouble.end or now
        return end + self.healing(end, now)

    def healing(self, end: int, now: int) -> int:
        return self.bounds.healed + self.scene.lateness(end, now)

    def troubled(self, begin: int, now: int, *, blind: bool = False, place: str | None = None) -> int:
        """The delay in ms that faults between `begin` and `now` excuse: the time they were active, plus recovery, without
        counting overlaps twice. Ledger faults count only with `blind`, for checks that depend on relations. `place`: count
        only faults of this node and of the store."""
        spans = sorted(
            (t.begin, self.until(t, now))
            for t in self.troubles
            if self.until(t, now) > begin
            and t.begin < now
            and (blind or not t.blinds)
            and (place is None or t.node in (place, None))
        )
        if not spans:
            return 0
        covered, reach = 0, begin
        for first, last in spans:
            covered += max(0, min(last, now) - max(first, reach))
            reach = max(reach, min(last, now))
        return covered

    # Violations

    def problem(self, kind: str, client: Device, shown: Shown, why: str) -> None:
        self.problems.append(f"{self.scene.now} {kind}: {whom(client)} sees {shown}: {why}")

    def wrong(self, what: str) -> None:
        self.problems.append(f"{self.scene.now} differs: {what}")


def whom(client: Device) -> str:
    return f"{client.user} on {'nowhere' if client.link is None else client.link.node.name}"


def seen(view: View) -> tuple[str, str | None]:
    """Return the part of a view that checks compare: the status, and the text of the custom status."""
    return view.status.word, None if view.custom is None else view.custom.text
