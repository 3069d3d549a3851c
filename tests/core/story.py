"""A story simulates nodes around one record under a manual clock, so that a test reads like a scenario:

    Story().play("connect d1, 10s, drop d1, 29s, connect d1").saw("online")

Steps are separated by commas. During a duration (`30s`, `5m`, `1ms`) every wake-up is processed on time; during
`asleep 30s` none is. Every other step is a method below with its arguments; `on`, `as`, `for`, `via` and `by` are keyword
arguments: `connect d1 on n2 as mobile`, `mode busy by call for 30m`. A step after `quietly` changes only the node's
memory, until something else makes the node settle.

Like the node, a story keeps timestamps per session, settles, commits, settles again while there is more, and drops
sessions that were signed out or refused. After every settle it checks the invariants (`_check`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from herenow.core import edits, record
from herenow.core.model import UNLEASED, Custom, Mode, Platform, Presence, Session, Source, View, own, public
from herenow.core.settle import Edit, Held, Outcome, Timings, settle, wake_at

T0 = 1_700_000_000_000
S = 1_000
M = 60 * S
H = 60 * M

UNITS = {"ms": 1, "s": S, "m": M, "h": H}
NAMED = {"on": "on", "as": "platform", "for": "lasts", "via": "via", "by": "by"}


def ms(text: str) -> int:
    """`1m-1ms` is a minute minus a millisecond."""
    parts = re.findall(r"([+-]?)(\d+)(ms|s|m|h)", text)
    assert "".join(map("".join, parts)) == text, f"{text!r} is not a duration"
    return sum((-1 if sign == "-" else 1) * int(number) * UNITS[unit] for sign, number, unit in parts)


@dataclass(eq=False)
class Line:
    """One session as its node knows it."""

    device: str
    platform: Platform
    since: int
    seen_at: int
    unleased: bool = False
    answers: bool = True
    """True: pings are answered, so that passing time is a sign of life."""
    tabs: int = 1
    active_at: int = 0
    idle: bool = False
    idle_at: int | None = None
    lost_at: int | None = None
    asserted: int = 0
    asserted_by: str = ""


@dataclass
class Node:
    name: str
    epoch: str
    lines: list[Line] = field(default_factory=list)
    alive: bool = True
    hears: bool = True
    """True: the node settles, reaps and receives sign-outs."""

    def line(self, device: str, *, unleased: bool = False) -> Line | None:
        for line in self.lines:
            if line.device == device and line.unleased is unleased and line.lost_at is None:
                return line
        return None

    def holder(self, line: Line) -> str:
        return UNLEASED if line.unleased else self.epoch


class Story:
    def __init__(self, start: Presence | None = None, *, punctual: bool = True, **timings: int) -> None:
        self.timings = Timings(**timings)
        self.now = T0
        self.record = Presence() if start is None else start
        self.nodes = {name: Node(name, f"epoch-{name}") for name in ("n1", "n2", "n3")}
        self.dead: dict[str, int] = {}
        """Epochs of dead nodes → their last renewal."""
        self.punctual = punctual
        """False: no wake-up is processed while time passes; records are settled only by events."""
        self.settled = True
        self.changes: list[View] = []
        self.outcomes: list[Outcome] = []
        self.ended: list[tuple[str, str]] = []
        """(device, reason) of sessions that were closed because the record required it."""
        self.commits = 0
        self.settled_at = self.now
        self._quiet = False
        self._epochs = 0
        self._told = 0

    # --- Results

    def saw(self, words: str) -> Story:
        """Assert that exactly these statuses were shown since the last call, in this order."""
        shown = [view.status.word for view in self.changes[self._told :]]
        self._told = len(self.changes)
        assert shown == words.split(), f"shown: {shown}"
        return self

    @property
    def view(self) -> View:
        return public(self.record)

    @property
    def status(self) -> str:
        return self.view.status.word

    @property
    def truth(self) -> str:
        return self.record.status.word

    @property
    def since(self) -> int | None:
        return _from_start(self.view.since)

    @property
    def last_seen(self) -> int | None:
        return _from_start(self.view.last_seen)

    @property
    def platforms(self) -> str:
        return " ".join(platform.word for platform in self.view.platforms)

    @property
    def devices(self) -> str:
        return " ".join(device.device for device in own(self.record).devices)

    @property
    def next_wake(self) -> int | None:
        return _from_start(wake_at(self.record, self.timings))

    @property
    def time(self) -> int:
        return self.now - T0

    # --- Running a script

    def play(self, script: str) -> Story:
        for step in filter(None, (part.strip() for part in script.split(","))):
            self._step(step)
        return self

    def _step(self, step: str) -> None:
        if step[0].isdigit():
            self.passes(ms(step))
            return
        verb, *words = step.split()
        self._quiet = verb == "quietly"
        if self._quiet:
            verb, *words = words
        arguments: list[str] = []
        named: dict[str, str] = {}
        while words:
            word = words.pop(0)
            if word in NAMED:
                named[NAMED[word]] = words.pop(0)
            else:
                arguments.append(word)
        getattr(self, verb.replace("-", "_"))(*arguments, **named)
        self._quiet = False

    # --- Time

    def passes(self, duration: int) -> None:
        end = self.now + duration
        while self.punctual and (due := self._next_due()) is not None and due <= end:
            assert due >= self.now, "what was due is done"
            self._sleep_until(due)
            self.look()
        self._sleep_until(end)

    def asleep(self, duration: str) -> None:
        """Let time pass without any wake-up."""
        self._sleep_until(self.now + ms(duration))

    def look(self) -> None:
        """Run a due reaper; every node checks its own sockets."""
        for node in self.nodes.values():
            if node.alive and node.hears and self._turn(node):
                self.settle(node)
        self.settle(self._anybody())

    def _sleep_until(self, end: int) -> None:
        for node in self.nodes.values():
            for line in node.lines:
                if line.answers and not line.unleased and line.lost_at is None and node.alive:
                    line.seen_at = end
        self.now = end

    def _next_due(self) -> int | None:
        dues = [due] if (due := wake_at(self.record, self.timings)) is not None else []
        for node in self.nodes.values():
            if node.alive and node.hears:
                dues += [line.seen_at + self.timings.dead_after for line in node.lines if not line.answers]
        return min(dues, default=None)

    # --- Sockets

    def connect(self, device: str, *, on: str = "n1", platform: str = "other") -> None:
        node = self._node(on)
        line = node.line(device)
        if line is None:
            node.lines.append(Line(device, Platform[platform.upper()], self.now, self.now))
        else:
            line.tabs += 1
            line.seen_at = self.now
        self.settle(node)

    def drop(self, device: str, *, on: str = "n1") -> None:
        """One socket of the device closes with a FIN, which is a sign of life."""
        node = self._node(on)
        line = node.line(device)
        if line is not None:
            line.seen_at = self.now
            line.tabs -= 1
            if line.tabs == 0:
                line.lost_at = self.now
        self.settle(node)

    def vanish(self, device: str, *, on: str = "n1") -> None:
        """The socket shows no more signs of life and sends no FIN."""
        line = self._node(on).line(device)
        assert line is not None
        line.answers = False

    def beat(self, device: str, *, on: str = "n1") -> None:
        node = self._node(on)
        line = node.line(device)
        if line is not None:
            line.seen_at = self.now
        self.settle(node)

    def act(self, device: str, *, on: str = "n1") -> None:
        node = self._node(on)
        if (line := node.line(device)) is not None:
            _acts(line, self.now)
        self.settle(node)

    def idle(self, device: str, *, on: str = "n1") -> None:
        node = self._node(on)
        if (line := node.line(device)) is not None:
            _rests(line, self.now)
        self.settle(node)

    # --- REST

    def rest(self, device: str, activity: str = "", *, on: str = "n1", platform: str = "other") -> None:
        """A REST heartbeat."""
        node = self._node(on)
        if node.line(device) is not None:
            {"": self.beat, "active": self.act, "idle": self.idle}[activity](device, on=on)
            return
        line = node.line(device, unleased=True)
        if line is None:
            line = Line(device, Platform[platform.upper()], self.now, self.now, unleased=True, answers=False)
            node.lines.append(line)
        line.seen_at = self.now
        if activity == "active":
            _acts(line, self.now)
        elif activity == "idle":
            _rests(line, self.now)
        self.settle(node)
        if activity and self._standing(device, UNLEASED) is None:
            self.settle(node, edits.act_on(device, idle=activity == "idle"))

    def gone(self, device: str, *, via: str = "n1") -> None:
        """An external gateway reports the device's connection as lost."""
        node = self._node(via)
        node.lines = [line for line in node.lines if not (line.unleased and line.device == device)]
        self.settle(node, edits.lose(device))

    def user_acts(self, *, via: str = "n1") -> None:
        node = self._node(via)
        for line in node.lines:
            if line.lost_at is None:
                line.active_at = self.now
                line.idle = False
        self.settle(node, edits.act())

    # --- Requests of users

    def bye(self, device: str, *, on: str = "n1") -> None:
        self.sign_out(device, via=on)

    def sign_out(self, device: str, *, via: str = "n1") -> None:
        """Nodes that receive the sign-out close the device's sockets; a node that does not finds it in the record."""
        node = self._node(via)
        node.lines = [line for line in node.lines if line.device != device]
        self.settle(node, edits.sign_out(device, (node.epoch,)))
        for each in self.nodes.values():
            if each.hears and each.alive and each is not node:
                each.lines = [line for line in each.lines if line.device != device]

    def bye_all(self, *, on: str = "n1") -> None:
        """Sign out of every device at once."""
        node = self._node(on)
        node.lines = []
        self.settle(node, edits.sign_out_all((node.epoch,)))

    def deleted(self) -> None:
        """Delete the user."""
        node = self._anybody()
        self.settle(node, edits.erase(self.now, (node.epoch,)))

    def mode(self, mode: str, *, lasts: str | None = None, by: str = "user", via: str = "n1") -> None:
        until = None if lasts is None else self.now + ms(lasts)
        self.settle(self._node(via), edits.set_mode(Mode[mode.upper()], until, Source[by.upper()]))

    def text(self, text: str, *, lasts: str | None = None, by: str = "user", via: str = "n1") -> None:
        until = None if lasts is None else self.now + ms(lasts)
        self.settle(self._node(via), edits.set_custom(Custom(text, until=until), Source[by.upper()]))

    def no_text(self, *, by: str = "user", via: str = "n1") -> None:
        self.settle(self._node(via), edits.set_custom(None, Source[by.upper()]))

    def idle_after(self, duration: str, *, via: str = "n1") -> None:
        limit = None if duration == "default" else ms(duration)
        self.settle(self._node(via), edits.set_idle_after(limit))

    # --- Nodes

    def kill(self, name: str, *, lasts: str = "0ms") -> None:
        """The process ends; its last renewal was `for` ago."""
        node = self.nodes[name]
        self.dead[node.epoch] = self.now - ms(lasts)
        node.alive = False
        node.lines = []

    def cut(self, name: str) -> None:
        """The node keeps its sockets but receives and decides nothing."""
        self.nodes[name].hears = False
        self.dead[self.nodes[name].epoch] = self.now

    def leaves(self, device: str, *, on: str) -> None:
        """A socket closes at a node that is cut off."""
        node = self.nodes[on]
        assert node.alive
        assert not node.hears
        line = node.line(device)
        assert line is not None
        line.seen_at = line.lost_at = self.now

    def retire(self) -> None:
        """The sweep: sessions of dead epochs enter grace."""
        self.settle(self._anybody(), edits.retire(self.dead))

    def returns(self, name: str) -> None:
        """A node that was marked dead takes a new epoch and asserts its sessions."""
        node = self.nodes[name]
        node.epoch = self._new_epoch()
        node.alive = node.hears = True
        self.settle(node)

    def hears(self, name: str) -> None:
        """A node that was cut off returns in time to keep its epoch."""
        node = self.nodes[name]
        node.hears = True
        self.dead.pop(node.epoch, None)
        self.settle(node)

    def loses_memory(self, *, settled: str = "no") -> None:
        """The store loses the record."""
        self.record = Presence()
        self.settled = settled == "yes"

    # --- Settle

    def settle(self, node: Node, *asked: Edit) -> None:
        self._turn(node)
        if self._quiet:
            return
        self.settled_at = self.now
        for _ in range(10):
            outcome = self._settled(node, asked)
            self._check(outcome)
            self._commit(outcome)
            self._note(node, outcome)
            if outcome.applied:
                asked = ()
            if not outcome.more:
                self._check_again(node)
                return
        raise AssertionError("it never ends")

    def _settled(self, node: Node, asked: tuple[Edit, ...] = ()) -> Outcome:
        held = [self._facts(node, line) for line in node.lines]
        return settle(
            self.record, self.now, self.timings, epoch=node.epoch, held=held, edits=asked, settled=self.settled
        )

    def _commit(self, outcome: Outcome) -> None:
        self.commits += outcome.presence != self.record
        self.outcomes.append(outcome)
        self.record = outcome.presence
        if outcome.change is not None:
            self.changes.append(outcome.change.after)

    def _note(self, node: Node, outcome: Outcome) -> None:
        """After the last settle: sessions in the record are asserted, reported losses are dropped, and a heartbeat that
        made no session is not kept.
        """
        for line in [] if outcome.more else list(node.lines):
            standing = self._standing(line.device, node.holder(line))
            if line.lost_at is None and standing is not None and standing.live:
                line.asserted, line.asserted_by = outcome.presence.version, node.holder(line)
            elif line.lost_at is not None or line.unleased:
                node.lines.remove(line)
        for why, devices in (("signed out", outcome.signed_out), ("refused", outcome.refused)):
            for device in devices:
                self.ended.append((device, why))
                node.lines = [line for line in node.lines if line.device != device]

    def _check(self, outcome: Outcome) -> None:
        after = outcome.presence
        assert record.decode(record.encode(after)) == after
        assert record.version_of(record.encode(after)) == after.version
        if after == self.record:
            assert outcome.change is None
            assert not outcome.news
            assert not outcome.unsaved
        else:
            assert after.version > self.record.version
            assert after.version >= self.now
        assert (outcome.change is not None) == (public(after) != public(self.record))
        assert outcome.change is None or outcome.news
        assert own(after) == own(self.record) or outcome.news
        assert outcome.wake_at == wake_at(after, self.timings)

    def _check_again(self, node: Node) -> None:
        """Settling again changes nothing."""
        again = self._settled(node)
        assert again.presence == self.record
        assert again.change is None
        assert not again.more

    # --- Helpers

    def _turn(self, node: Node) -> bool:
        """The node's liveness check: it knows when its sockets died; a dead REST line is removed."""
        found = False
        for line in list(node.lines):
            died_at = line.seen_at + self.timings.dead_after
            if line.answers or line.lost_at is not None or died_at > self.now:
                continue
            if line.unleased:
                node.lines.remove(line)
            else:
                line.lost_at = died_at
                found = True
        return found

    def _facts(self, node: Node, line: Line) -> Held:
        return Held(
            device=line.device,
            holder=(line.asserted_by if line.lost_at is not None else "") or node.holder(line),
            since=line.since,
            seen_at=line.seen_at,
            active_at=line.active_at,
            platform=line.platform,
            idle=line.idle,
            lost_at=line.lost_at,
            asserted=line.asserted,
            asserted_by=line.asserted_by,
            idle_at=line.idle_at,
        )

    def _standing(self, device: str, holder: str) -> Session | None:
        for session in self.record.sessions:
            if (session.device, session.holder) == (device, holder):
                return session
        return None

    def _node(self, name: str) -> Node:
        node = self.nodes[name]
        assert node.alive, f"{name} is dead"
        assert node.hears, f"{name} is cut off"
        self._turn(node)
        return node

    def _anybody(self) -> Node:
        return next(node for node in self.nodes.values() if node.alive and node.hears)

    def _new_epoch(self) -> str:
        self._epochs += 1
        return f"epoch{self._epochs:03}"


def _acts(line: Line, now: int) -> None:
    line.seen_at = line.active_at = now
    line.idle = False


def _rests(line: Line, now: int) -> None:
    line.seen_at = line.idle_at = now
    line.idle = True


def _from_start(at: int | None) -> int | None:
    return None if at is None else at - T0


def table(names: str, rows: dict[str, tuple[object, ...]]) -> pytest.MarkDecorator:
    """Table rows with readable ids: description of the case → its values."""
    return pytest.mark.parametrize(names, [pytest.param(*row, id=name) for name, row in rows.items()])
