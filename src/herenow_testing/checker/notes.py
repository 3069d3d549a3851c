"""What clients truly did and were shown, what went wrong meanwhile, and how late that may make things.

Everything here is written down as it happens; nothing is judged. Another thing that a client may do, or another way for a
fault to excuse that something is late, is the reason to change this module.
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
        """How much was checked, so that a run can show that it was worth something."""
        self.longest_ghost = 0
        """Milliseconds that somebody was shown as here after their last session had ended, at most."""
        self.viewers = set(viewers)
        self.stays: dict[str, list[Stay]] = defaultdict(list)
        self.open: dict[Device, Stay] = {}
        self._rest: dict[tuple[str, str], Stay] = {}
        self.modes: dict[str, Chosen] = defaultdict(lambda: Chosen([Mode.AUTO]))
        self.texts: dict[str, Chosen] = defaultdict(lambda: Chosen([None]))
        self.hidden_since: dict[str, int] = {}
        self.last: dict[tuple[Way, str], tuple[Shown, int]] = {}
        """What each socket was shown last of each user, and the version its node knew."""
        self.troubles: list[Trouble] = []

    # What clients do

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
        """It ended, and left its node a tab that is half-open: as long as the session shows life by another one, and until
        it falls silent, the node cannot tell."""
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
        """From here on nobody can say whether the device is still signed in."""
        for stay in self.stays[user]:
            if stay.device == device and (stay.ended_at is None or self.in_grace(stay, self.scene.now)):
                stay.how = "signed out"
                stay.signed_at = self.scene.now
                stay.asked_out = stay.greeted_at is not None
        self._rest.pop((user, device), None)

    def is_signed_out(self, user: str, device: str) -> None:
        """Whoever asked for it was told that it is done."""
        for stay in self.stays[user]:
            if stay.device == device and stay.asked_out and stay.out_at is None:
                stay.out_at = self.scene.now

    def beat(self, user: str, device: str, node: str, asked_at: int | None = None) -> None:
        """A beat by REST, of this time, was accepted now. Where the last one may have run out, it begins another stay: that
        the device was gone meanwhile may still be under way to who looks."""
        now = self.scene.now
        at = now if asked_at is None else asked_at
        stay = self._rest.get((user, device))
        if stay is None or now >= stay.seen_at + self.bounds.rest:
            stay = self._rest[user, device] = Stay(user, device, node, at, at, by_rest=True, greeted_at=now)
            self.stays[user].append(stay)
        stay.seen_at, stay.node = at, node

    def may_have_beaten(self, user: str, device: str, node: str) -> None:
        """A beat by REST was not answered: it may have been accepted, or be accepted yet."""
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

    # What goes wrong

    def trouble(self, kind: str, node: str | None = None, **what: bool) -> Trouble:
        """`what`: see `Trouble`. Nothing is excused by what is not said."""
        trouble = Trouble(kind, node, self.scene.now, **what)
        self.troubles.append(trouble)
        self.counts[kind] += 1
        return trouble

    def over(self, trouble: Trouble) -> None:
        trouble.end = self.scene.now

    @property
    def unhealed(self) -> list[Trouble]:
        """Faults that are over, and of which nobody has seen yet that everything is right again."""
        return [t for t in self.troubles if t.end is not None and t.healed_at is None]

    def all_right(self) -> None:
        """Somebody saw that every view is right again: from now on no fault that is over excuses anything."""
        for trouble in self.unhealed:
            trouble.healed_at = self.scene.now

    # How late things may be

    def is_known(self, stay: Stay, to: Device | None = None) -> bool:
        """Everybody must have heard that it was here; or only one viewer. What is shown may still be of the time before, for
        as long as a change is under way. That its node is in trouble delays no viewer elsewhere: when it greets, it has
        committed. But a store that then loses the commit has it again only when that node has healed.

            n1   accepts a beat ─ 200          n1 is late to offer it ─▶ online
            store               └─ fails over: lost ┘
            n2                                   whole again: offline, never seen
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
        """How long it may excuse that something is late."""
        if trouble.healed_at is not None:
            return trouble.healed_at
        end = trouble.end or now
        return end + self.healing(end, now)

    def healing(self, end: int, now: int) -> int:
        return self.bounds.healed + self.scene.lateness(end, now)

    def troubled(self, begin: int, now: int, *, blind: bool = False, place: str | None = None) -> int:
        """How long something that should have happened since `begin` may be late because of faults: as long as they
        were in force, and the time to recover from each. Presence does not wait for a ledger; only what depends on who may
        see whom (`blind`) does. `place`: only because of this node, or of the store."""
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

    # What is found

    def problem(self, kind: str, client: Device, shown: Shown, why: str) -> None:
        self.problems.append(f"{self.scene.now} {kind}: {whom(client)} sees {shown}: {why}")

    def wrong(self, what: str) -> None:
        self.problems.append(f"{self.scene.now} differs: {what}")


def whom(client: Device) -> str:
    return f"{client.user} on {'nowhere' if client.link is None else client.link.node.name}"


def seen(view: View) -> tuple[str, str | None]:
    """What others see of somebody, as far as it is compared."""
    return view.status.word, None if view.custom is None else view.custom.text
