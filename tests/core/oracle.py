"""A second implementation of presence: the rules of docs/what-a-status-means.md, computed slowly, without records or
flags.

The oracle is given every event with its time. Idleness is a comparison of times; due events are found by checking every
instant that could matter. It shares no code with `herenow.core`, only the words for statuses.
"""

from __future__ import annotations

from dataclasses import dataclass

REST = ""


@dataclass(eq=False)
class Visit:
    """A session: a device at a holder."""

    committed: int
    acted: int
    said_idle: bool = False
    lost: int | None = None
    evidence: int | None = None
    """Last sign of life of a session that dies if it stays silent (REST, half-open socket)."""


SOURCES = ("user", "call", "service", "calendar", "schedule")
"""Highest first."""


class Oracle:
    def __init__(self, now: int, *, grace: int, idle_after: int, dead_after: int, online_delay: int) -> None:
        self.now = now
        self.grace, self.dead_after, self.online_delay = grace, dead_after, online_delay
        self.default_idle_after = idle_after
        self.own_idle_after: int | None = None
        self.visits: dict[tuple[str, str], Visit] = {}
        self.mode = "auto"
        """The mode that counts."""
        self.modes: dict[str, tuple[str, int | None]] = {}
        """Source → (mode, end), without `auto`."""
        self.texts: dict[str, tuple[str, int | None]] = {}
        self.status = "offline"
        self.since: int | None = None
        self.last_seen: int | None = None
        self.arriving_until: int | None = None
        self.shown_at = 0
        self.hidden_at: int | None = None
        self.shown = ["offline"]
        """All public statuses so far, in order, without repetitions."""

    # --- Public view

    @property
    def hidden(self) -> bool:
        return self.mode == "invisible" or self.arriving_until is not None

    @property
    def public(self) -> str:
        return "offline" if self.hidden else self.status

    @property
    def public_since(self) -> int | None:
        return self.last_seen if self.public == "offline" else self.since

    @property
    def public_last_seen(self) -> int | None:
        return self.last_seen if self.public == "offline" else None

    @property
    def public_text(self) -> str | None:
        return None if self.public == "offline" else self.text

    @property
    def text(self) -> str | None:
        return next((self.texts[source][0] for source in SOURCES if source in self.texts), None)

    @property
    def mode_source(self) -> str | None:
        return next((source for source in SOURCES if source in self.modes), None)

    @property
    def text_source(self) -> str | None:
        return next((source for source in SOURCES if source in self.texts), None)

    # --- Time

    def instants(self) -> list[int]:
        """All times at which something may happen by itself."""
        found = [self.arriving_until]
        found += [until for _, until in [*self.modes.values(), *self.texts.values()]]
        for visit in self.visits.values():
            found.append(visit.acted + self.idle_after)
            if visit.lost is not None:
                found.append(visit.lost + self.grace)
            elif visit.evidence is not None:
                found.append(visit.evidence + self.dead_after)
        return sorted(at for at in found if at is not None and at > self.now)

    def advance(self, to: int) -> None:
        while (instants := self.instants()) and instants[0] <= to:
            self.now = instants[0]
            self.happen()
        self.now = to

    def happen(self) -> None:
        """Process everything that is due now; with a grace of zero a loss ends at once."""
        for _ in range(2):
            for key, visit in list(self.visits.items()):
                if visit.lost is None and visit.evidence is not None and self.now >= visit.evidence + self.dead_after:
                    self._lose(key, visit.evidence)
                elif visit.lost is not None and self.now >= visit.lost + self.grace:
                    del self.visits[key]
            self._judge_if_live()
        self.modes = self._unended(self.modes)
        self.texts = self._unended(self.texts)
        self._choose(self.modes[source][0] if (source := self.mode_source) else "auto")
        if self._live() and self.arriving_until is not None and self.now >= self.arriving_until:
            self.arriving_until = None
        self._judge_if_live()

    # --- Events

    def joins(self, device: str, holder: str) -> None:
        self.joined(device, holder, self.now)
        self.happen()

    def joined(
        self, device: str, holder: str, since: int, *, acted: int = 0, idle_at: int | None = None, was: str = ""
    ) -> None:
        """`was`: the holder's earlier epoch, if it is the same socket."""
        same = [v for (d, _), v in self.visits.items() if d == device]
        if self.online_delay and not self._live() and (self.status == "offline" or self.arriving_until is not None):
            self.arriving_until = self.now + self.online_delay
        visit = Visit(committed=self.now, acted=max(acted, since), said_idle=idle_at is not None)
        if same:
            latest = max(same, key=lambda v: v.acted)
            visit.acted = max(acted, latest.acted)
            visit.said_idle = latest.said_idle and acted <= latest.acted
            if idle_at is not None and idle_at >= latest.acted:
                visit.said_idle = True
        for key, old in list(self.visits.items()):
            if key[0] == device and (old.lost is not None or key[1] in (REST, was)):
                del self.visits[key]
        self.visits[device, holder] = visit

    def acts(self, device: str, holder: str) -> None:
        visit = self.visits[device, holder]
        visit.acted = visit.committed = self.now
        visit.said_idle = False
        self._lives(visit)

    def somebody_acts(self) -> None:
        """Activity of the user on an unknown device."""
        for visit in self.visits.values():
            if visit.lost is None:
                visit.acted = self.now
                visit.said_idle = False
        self.happen()

    def rests(self, device: str, holder: str) -> None:
        visit = self.visits[device, holder]
        if not visit.said_idle:
            visit.committed = self.now
        visit.said_idle = True
        self._lives(visit)

    def beats(self, device: str, holder: str) -> None:
        self._lives(self.visits[device, holder])

    def falls_silent(self, device: str, holder: str) -> None:
        self.visits[device, holder].evidence = self.now

    def rest_beat(self, device: str, activity: str) -> None:
        acted = self.now if activity == "active" else 0
        self.joined(device, REST, self.now, acted=acted, idle_at=self.now if activity == "idle" else None)
        self.visits[device, REST].evidence = self.now
        self.happen()

    def loses(self, device: str, holder: str) -> None:
        """The socket closes with a FIN, which is a sign of life."""
        self._lose((device, holder), self.now)
        self.happen()

    def dies(self, holders: dict[str, int]) -> None:
        """Nodes are found dead; `holders`: epoch → last renewal."""
        for key in list(self.visits):
            if key[1] in holders:
                self._lose(key, holders[key[1]])
        self.happen()

    def signs_out(self, device: str) -> None:
        gone = [self.visits.pop(key) for key in list(self.visits) if key[0] == device]
        if any(v.lost is None for v in gone) and not self.hidden:
            self._seen(self.now)
        rest = list(self.visits.values())
        if gone and rest and not self._live():
            last = max(v.lost or 0 for v in rest)
            if any(v.lost is None or v.lost >= last for v in gone):
                self._judge()
        self.happen()

    def chooses(self, mode: str, until: int | None, source: str = "user") -> None:
        self.modes.pop(source, None)
        if mode != "auto":
            self.modes[source] = mode, until
        self._choose(self.modes[highest][0] if (highest := self.mode_source) else "auto")
        self.happen()

    def writes(self, text: str | None, until: int | None = None, source: str = "user") -> None:
        self.texts.pop(source, None)
        if text is not None:
            self.texts[source] = text, until

    def idles_after(self, limit: int | None) -> None:
        self.own_idle_after = limit
        self.happen()

    # --- Rules 1 to 5

    @property
    def idle_after(self) -> int:
        return self.default_idle_after if self.own_idle_after is None else self.own_idle_after

    def _live(self) -> bool:
        return any(v.lost is None for v in self.visits.values())

    def _judge_if_live(self) -> None:
        if not self.visits or self._live():
            self._judge()
        self._note()

    def _judge(self) -> None:
        if not self.visits:
            self._becomes("offline", None)
            self.arriving_until = None
            self.shown_at = 0
        elif self.mode == "busy":
            self._becomes("busy", self.now)
        elif self.mode == "away":
            self._becomes("away", self.now)
        elif any(not v.said_idle and self.now < v.acted + self.idle_after for v in self.visits.values()):
            self._becomes("online", self.now)
        else:
            self._becomes("away", max(self.shown_at, *(v.acted for v in self.visits.values())))

    def _becomes(self, status: str, since: int | None) -> None:
        if status != self.status:
            self.status, self.since = status, since

    def _note(self) -> None:
        if self.public != self.shown[-1]:
            self.shown.append(self.public)

    # --- Helpers

    def _unended(self, chosen: dict[str, tuple[str, int | None]]) -> dict[str, tuple[str, int | None]]:
        return {source: each for source, each in chosen.items() if each[1] is None or self.now < each[1]}

    def _choose(self, mode: str) -> None:
        if mode == "invisible" and self.public != "offline" and self._live():
            self._seen(self.now)
        if self.mode == "invisible" and mode != "invisible" and self.visits:
            self.since = self.shown_at = self.now
        if (mode == "invisible") != (self.mode == "invisible"):
            self.hidden_at = self.now if mode == "invisible" else None
        self.mode = mode

    def _lives(self, visit: Visit) -> None:
        if visit.evidence is not None:
            visit.evidence = self.now
        self.happen()

    def _lose(self, key: tuple[str, str], evidence: int) -> None:
        visit = self.visits[key]
        if visit.lost is not None:
            return
        seen = max(visit.committed, evidence)
        if not self.hidden:
            self._seen(max(seen, self.shown_at))
        twins = [v for k, v in self.visits.items() if k[0] == key[0] and v is not visit and v.lost is None]
        if not twins:
            visit.lost = self.now
            return
        for twin in twins:
            if visit.acted > twin.acted:
                twin.acted = visit.acted
                twin.said_idle = twin.said_idle or visit.said_idle
        del self.visits[key]

    def _seen(self, at: int) -> None:
        self.last_seen = at if self.last_seen is None else max(self.last_seen, at)
