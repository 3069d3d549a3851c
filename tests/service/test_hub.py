"""The hub alone, under random verbs: what every connection got, compared with a model that remembers each of them.

The model is the plain reading of the promise: a connection has the last body it was sent of each person it watches; at
the end of a tick it has what they are now, and it was never sent the same body twice in a row.
"""

import asyncio
import random

import msgspec
import pytest

from herenow.core.model import Presence, Status
from herenow.core.values import replace
from herenow.core.visibility import Sight
from herenow.service.hub import WIDEST_TICK, Hub
from herenow.service.metrics import Metrics
from herenow.service.outbox import Outbox
from herenow.service.people import People
from herenow.testing.manual_clock import START, LoopClock

pytestmark = pytest.mark.looptime(noop_cycles=0)

PEOPLE = ("ana", "bob", "cem")
SIGHTS = (Sight.FULL, Sight.TRUTH, Sight.NONE)


class Viewer:
    """A connection, and what the model knows of it."""

    def __init__(self, name):
        self.outbox = Outbox(name, self.receive, lambda: None)
        self.has = {}
        self.frames = 0

    def receive(self, frame):
        self.frames += 1
        said = msgspec.json.decode(frame)
        for status in said.get("statuses", [said]):
            user, value = _value(status)
            assert user in self.outbox.watching, f"{user} is not watched any more"
            assert self.has[user] != value, f"{user} was sent twice: {value}"
            self.has[user] = value


class Stage:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.people = People(shards=2)
        self.hub = Hub(self.people, LoopClock(), Metrics())
        self.viewers = [Viewer(f"v{number}") for number in range(4)]
        for user in PEOPLE:
            self.people.get(user).pins += 1

    def watch(self):
        viewer, person = self.anybody(), self.somebody()
        channel = self.hub.watch(viewer.outbox, person, self.random.choice(SIGHTS))
        viewer.has[person.user] = _body_value(channel.body)  # the answer to the subscribe

    def unwatch(self):
        viewer, person = self.anybody(), self.somebody()
        self.hub.unwatch(viewer.outbox, person.user)
        viewer.has.pop(person.user, None)

    def resight(self):
        viewer, person = self.anybody(), self.somebody()
        if person.user in viewer.outbox.watching:
            self.hub.resight(viewer.outbox, person, self.random.choice(SIGHTS))

    def change(self):
        person = self.somebody()
        status = self.random.choice([Status.ONLINE, Status.AWAY, Status.OFFLINE])
        person.presence = replace(
            Presence(), status=status, since=None if status is Status.OFFLINE else START
        )
        self.hub.publish(person)

    def doubt(self):
        self.hub.set_stale(self.random.randrange(2), stale=self.random.random() < 0.5)

    def pause(self):
        self.hub.pause(self.anybody().outbox)

    def resume(self):
        self.hub.resume(self.anybody().outbox)

    def leave(self):
        viewer = self.anybody()
        self.hub.forget(viewer.outbox)
        self.viewers[self.viewers.index(viewer)] = Viewer(viewer.outbox.user)

    async def rest(self):
        await asyncio.sleep(self.random.choice([0.001, 0.015, 0.03]))

    def anybody(self):
        return self.random.choice(self.viewers)

    def somebody(self):
        return self.people.get(self.random.choice(PEOPLE))

    async def settle(self):
        for viewer in self.viewers:
            self.hub.resume(viewer.outbox)
        await asyncio.sleep(3 * WIDEST_TICK)


@pytest.mark.parametrize("start", range(0, 400, 50))
async def test_every_connection_ends_with_the_latest_and_is_never_told_the_same_twice(start):
    frames = 0
    for seed in range(start, start + 50):
        stage = Stage(seed)
        verbs = [stage.watch] * 4 + [stage.change] * 8 + [stage.resight, stage.unwatch] * 2
        verbs += [stage.pause, stage.resume, stage.leave, stage.doubt]
        for _ in range(80):
            if stage.random.random() < 0.25:
                await stage.rest()
            stage.random.choice(verbs)()
        await stage.settle()
        for viewer in stage.viewers:
            watching = viewer.outbox.watching
            assert {u: _body_value(c.body) for u, c in watching.items()} == viewer.has, f"seed {seed}"
            assert viewer.outbox.ready
            assert not viewer.outbox.dirty
            frames += viewer.frames
        assert not stage.hub._touched
    assert frames > 200  # or nothing was shown by all this


async def test_f7_ten_changes_within_a_tick_are_one_frame_now_and_one_at_its_end():
    stage = Stage(0)
    viewer = stage.viewers[0]
    ana = stage.people.get("ana")
    viewer.has["ana"] = _body_value(stage.hub.watch(viewer.outbox, ana, Sight.FULL).body)
    for number in range(10):
        ana.presence = replace(Presence(), status=Status.ONLINE, since=START + number)
        stage.hub.publish(ana)
    await asyncio.sleep(0.1)
    assert viewer.frames == 2
    assert viewer.has["ana"]["since"] == START + 9


async def test_one_who_was_told_at_once_hears_that_it_changed_back_and_one_who_rested_does_not():
    """ana comes and goes within a tick. The first viewer was ready and heard that she came; the second was not."""
    stage = Stage(0)
    ready, resting = stage.viewers[:2]
    ana, bob = stage.people.get("ana"), stage.people.get("bob")
    for viewer in (ready, resting):
        viewer.has["ana"] = _body_value(stage.hub.watch(viewer.outbox, ana, Sight.FULL).body)
    resting.has["bob"] = _body_value(stage.hub.watch(resting.outbox, bob, Sight.FULL).body)
    for person, status in (
        (bob, Status.ONLINE),
        (ana, Status.ONLINE),
        (ana, Status.AWAY),
        (ana, Status.OFFLINE),
    ):
        person.presence = replace(
            Presence(), status=status, since=None if status is Status.OFFLINE else START
        )
        stage.hub.publish(person)
    await asyncio.sleep(0.1)
    assert (ready.frames, resting.frames) == (2, 1)
    assert ready.has["ana"] == resting.has["ana"]


def _value(status):
    status = {key: value for key, value in status.items() if key not in ("type", "as_of")}
    return status["user_id"], status


def _body_value(body):
    return msgspec.json.decode(body + b"}")
