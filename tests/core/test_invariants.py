"""Invariants of the core: a state machine simulates two nodes, and an oracle computes the expected result.

Time moves mostly to edges (a millisecond before, at and after everything that can be due). `punctual` runs settle at
every wake-up, the others only at events: the result must be the same, with fewer changes shown on the way.

    HYPOTHESIS_PROFILE=thorough pytest tests/core/test_invariants.py
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.core.oracle import REST, SOURCES, Oracle
from tests.core.story import T0, H, Line, M, S, Story

from herenow.core.model import Mode, Source
from herenow.core.settle import droppable
from herenow.core.sources import choices
from herenow.core.timeline import REMEMBER_SIGN_OUT

PROFILES = {
    "quick": settings(max_examples=120, stateful_step_count=30, derandomize=True),
    "thorough": settings(max_examples=2_000, stateful_step_count=60),
}

devices = st.sampled_from(["a", "b"])
nodes = st.sampled_from(["n1", "n2"])
shifts = st.sampled_from([-1, 0, 1])
ends = st.sampled_from([None, 1, 10 * S, 4 * M, 30 * M])
sources = st.sampled_from(["user", "user", "user", *SOURCES])
PLATFORMS = {"a": "web", "b": "mobile"}
THIRD = 30 * S
"""REST heartbeats come no closer here, so that each is written; test_unleased covers the others."""


class World(RuleBasedStateMachine):
    @initialize(
        punctual=st.booleans(), grace=st.sampled_from([30 * S, 30 * S, 0]), online_delay=st.sampled_from([0, 0, 5 * S])
    )
    def begin(self, punctual, grace, online_delay):
        self.story = Story(punctual=punctual, grace=grace, online_delay=online_delay)
        self.oracle = Oracle(T0, grace=grace, idle_after=5 * M, dead_after=90 * S, online_delay=online_delay)
        self.punctual = punctual
        self.signed_out: dict[str, int] = {}
        """Devices whose sign-out n2 did not receive, with its time."""
        self.shown_before = 0
        self.changes_before = 0
        self.hidden_at = None
        self.hidden_view = None
        self.last_seen = None

    # --- Time

    @rule(which=st.sampled_from([0, 0, 0, 1, 2]), shift=shifts)
    def to_an_edge(self, which, shift):
        instants = [at for at in self.oracle.instants() if at > self.story.now]
        if instants:
            self.passes(max(instants[min(which, len(instants) - 1)] + shift - self.story.now, 1))

    @rule(shift=shifts)
    def to_the_next_edge(self, shift):
        self.to_an_edge(0, shift)

    @rule(duration=st.sampled_from([1, 1 * S, 10 * S, 2 * M]))
    def passes(self, duration):
        self.story.passes(duration)
        if self.punctual:
            self.now()

    @rule()
    def look(self):
        self.now()
        self.story.look()

    # --- Devices

    @rule(device=devices, node=nodes, verb=st.sampled_from(["act", "idle", "idle", "beat", "drop", "drop", "vanish"]))
    def socket(self, device, node, verb):
        """A device that is not connected connects first."""
        if not self.hears(node):
            return
        if verb == "act":
            self.passes(1)  # activity in the same millisecond as the last activity does not count
        elif verb in ("drop", "vanish"):
            self.between_two_instants()
        line = self.line(device, node)
        self.now()
        key = device, self.epoch(node)
        if line is None:
            self.oracle.joins(*key)
            self.story.connect(device, on=node, platform=PLATFORMS[device])
        elif verb == "vanish" and (node == "n2" or not line.answers):
            pass  # if two nodes find a loss late, either order is valid
        else:
            {
                "act": self.oracle.acts,
                "idle": self.oracle.rests,
                "beat": self.oracle.beats,
                "drop": self.oracle.loses,
                "vanish": self.oracle.falls_silent,
            }[verb](*key)
            getattr(self.story, verb)(device, on=node)

    @rule(device=st.sampled_from(["a", "r"]), activity=st.sampled_from(["", "", "active", "idle"]))
    def rest(self, device, activity):
        visit = self.oracle.visits.get((device, REST))
        if visit is not None and visit.lost is None and self.story.now < visit.committed + THIRD:
            self.passes(visit.committed + THIRD - self.story.now)
        ahead = max(self.story.record.version - self.story.now, 0)
        self.passes(ahead + 1)  # a sign-out wins within its millisecond
        if visit is not None and visit.evidence is not None and self.story.now == visit.evidence + 90 * S:
            self.passes(1)  # A3: within one millisecond the order of events decides
        self.now()
        here = [key for key, v in self.oracle.visits.items() if key[0] == device and v.lost is None]
        sockets = [key for key in here if key[1] != REST]
        if self.line(device, "n1") is not None:
            sockets = [(device, self.epoch("n1"))]
            self.oracle.beats(*sockets[0])
        if not sockets:
            self.oracle.rest_beat(device, activity)
        for key in sockets:
            if activity == "active":
                self.oracle.acts(*key)
            elif activity == "idle":
                self.oracle.rests(*key)
        self.story.rest(device, activity)

    @rule(device=st.sampled_from(["a", "b", "r"]), node=nodes, how=st.sampled_from(["sign out", "gateway", "act"]))
    def from_outside(self, device, node, how):
        """A sign-out, a loss reported by a gateway, or activity on an unknown device."""
        if not self.hears(node):
            return
        if how == "act":
            self.passes(1)
        self.now()
        if how == "act":
            self.oracle.somebody_acts()
            self.story.user_acts(via=node)
        elif how == "gateway":
            if (device, REST) in self.oracle.visits:
                self.oracle.loses(device, REST)
            self.story.gone(device)
        else:
            if not self.hears("n2") and (device, self.epoch("n2")) in self.oracle.visits:
                self.signed_out[device] = self.story.now
            self.oracle.signs_out(device)
            self.story.sign_out(device, via=node)

    # --- Choices of users and services

    @rule(mode=st.sampled_from([*(mode.word for mode in Mode), "invisible"]), lasts=ends, source=sources)
    def choose(self, mode, lasts, source):
        self.now()
        self.oracle.chooses(mode, None if lasts is None else self.story.now + lasts, source)
        self.story.mode(mode, lasts=None if lasts is None else f"{lasts}ms", by=source)

    @rule(text=st.sampled_from(["tea", "lunch", None]), lasts=ends, source=sources)
    def write(self, text, lasts, source):
        self.now()
        if text is None:
            self.oracle.writes(None, source=source)
            self.story.no_text(by=source)
        else:
            self.oracle.writes(text, None if lasts is None else self.story.now + lasts, source)
            self.story.text(text, lasts=None if lasts is None else f"{lasts}ms", by=source)

    @rule(limit=st.sampled_from([None, 30 * S, 1 * H]))
    def change_idle_after(self, limit):
        self.now()
        self.oracle.idles_after(limit)
        self.story.idle_after("default" if limit is None else f"{limit}ms")

    # --- The second node

    @rule(how=st.sampled_from(["kill", "cut", "retire", "retire"]), ago=st.sampled_from([0, 3 * S]))
    def trouble(self, how, ago):
        """The node is killed or cut off and comes back; another node sweeps its sessions."""
        if how == "retire":
            self.now()
            self.oracle.dies(self.story.dead)
            self.story.retire()
        elif not self.hears("n2"):
            self.returns()
        elif how == "kill":
            self.story.kill("n2", lasts=f"{ago}ms")
        else:
            self.story.cut("n2")

    def returns(self):
        self.now()
        node = self.story.nodes["n2"]
        lines, was = list(node.lines), node.epoch
        signed_out, self.signed_out = self.signed_out, {}
        self.story.returns("n2")
        for line in lines:
            if self.story.now >= signed_out.get(line.device, 0) + REMEMBER_SIGN_OUT:
                idle_at = line.idle_at if line.idle else None
                self.oracle.joined(line.device, node.epoch, line.since, acted=line.active_at, idle_at=idle_at, was=was)
        self.oracle.happen()

    # --- Invariants

    @invariant()
    def the_record_says_what_is_true(self):
        oracle, story = self.oracle, self.story
        if self.nobody_looked():
            return
        assert story.truth == oracle.status
        assert story.status == oracle.public
        assert story.record.last_seen == oracle.last_seen
        assert story.view.last_seen == oracle.public_last_seen
        assert (story.view.custom and story.view.custom.text) == oracle.public_text
        record = story.record
        assert word(record.mode_source) == oracle.mode_source
        assert word(record.custom_source) == oracle.text_source
        assert {choice.source.word for choice in choices(record)} == {*oracle.modes, *oracle.texts}
        if self.punctual or oracle.public == "offline":
            assert story.view.since == oracle.public_since

    @invariant()
    def only_what_was_true_is_shown(self):
        """In punctual runs, everything that was true is shown as well."""
        if self.nobody_looked():
            return
        was = self.oracle.shown[self.shown_before :]
        shown = self.oracle.shown[self.shown_before : self.shown_before + 1]
        for view in self.story.changes[self.changes_before :]:
            if view.status.word != shown[-1]:
                shown.append(view.status.word)
        if self.punctual:
            assert shown == was
        else:
            rest = iter(was)
            assert all(status in rest for status in shown)
        self.shown_before = len(self.oracle.shown) - 1
        self.changes_before = len(self.story.changes)

    @invariant()
    def nobody_is_shown_offline_who_is_here_or_may_come_back(self):
        record = self.story.record
        assert self.story.status != "offline" or record.hidden or not record.sessions

    @invariant()
    def no_two_consecutive_changes_are_equal(self):
        for one, other in zip(self.story.changes, self.story.changes[1:], strict=False):
            assert one != other

    @invariant()
    def last_seen_never_goes_back(self):
        last_seen = self.story.record.last_seen
        assert self.last_seen is None or (last_seen is not None and last_seen >= self.last_seen)
        self.last_seen = last_seen

    @invariant()
    def who_hides_looks_the_same_all_the_time(self):
        if self.nobody_looked():
            return
        if self.oracle.hidden_at != self.hidden_at:
            self.hidden_at, self.hidden_view = self.oracle.hidden_at, self.story.view
        assert self.hidden_at is None or self.story.view == self.hidden_view

    @invariant()
    def platforms_agree_with_the_status(self):
        record = self.story.record
        here = {session.platform for session in record.sessions}
        assert bool(self.story.view.platforms) == (self.story.status != "offline")
        if record.live and not record.hidden:
            assert set(self.story.view.platforms) <= here

    @invariant()
    def a_device_has_one_grace_and_none_beside_a_live_session(self):
        sessions = self.story.record.sessions
        for lost in (s for s in sessions if not s.live):
            assert [s for s in sessions if s.device == lost.device] == [lost]

    @invariant()
    def whoever_is_due_was_looked_at(self):
        wake = self.story.next_wake
        assert wake is None or wake > self.story.time or self.nobody_looked()

    def teardown(self):
        """All devices become silent: the user is offline and no wake-up remains."""
        if not hasattr(self, "story"):
            return
        story = self.story
        story.punctual = True
        for name in ("n1", "n2"):
            for line in list(story.nodes[name].lines):
                if self.hears(name) and not line.unleased:
                    while story.nodes[name].line(line.device) is not None:
                        story.drop(line.device, on=name)
        if story.nodes["n2"].alive:
            story.kill("n2")
        story.retire()
        story.passes(30 * M + 90 * S + REMEMBER_SIGN_OUT)
        assert story.truth == story.status == "offline"
        assert not story.record.sessions
        assert story.next_wake is None
        for source in SOURCES:
            story.play(f"mode auto by {source}, no-text by {source}")
        assert droppable(story.record)

    # --- Helpers

    def now(self) -> None:
        """Bring the oracle to the current time."""
        self.report()
        self.oracle.advance(self.story.now)

    def between_two_instants(self) -> None:
        """Move time off instants where something is due: there the result depends on the order."""
        while self.story.now in self.oracle.instants():
            self.passes(1)

    def report(self) -> None:
        """The first node reports which of its sockets died, if any."""
        node = self.story.nodes["n1"]
        if self.story._turn(node):
            self.oracle.advance(self.story.now)
            self.story.settle(node)

    @property
    def looked_at(self) -> int:
        """Time of the last settle; the current time in punctual runs."""
        return self.story.now if self.punctual else self.story.settled_at

    def nobody_looked(self) -> bool:
        """True if time has passed since the last settle."""
        return self.looked_at != self.story.now

    def hears(self, node: str) -> bool:
        return self.story.nodes[node].alive and self.story.nodes[node].hears

    def line(self, device: str, node: str) -> Line | None:
        self.report()
        return self.story.nodes[node].line(device) if self.hears(node) else None

    def epoch(self, node: str) -> str:
        return self.story.nodes[node].epoch


def word(source: Source | None) -> str | None:
    return None if source is None else source.word


World.TestCase.settings = settings(
    PROFILES.get(os.environ.get("HYPOTHESIS_PROFILE", ""), PROFILES["quick"]),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWorld = World.TestCase
