"""The hub alone under random operations, compared with a model of every connection.

The model: a connection has the last body it was sent for each watched user; at the end of a tick that is the current
body, and the same body was never sent twice in a row.
"""

import asyncio
import random

import msgspec
import pytest

from herenow.core.limits import LONGEST_WAVE, DeliveryMode, FanoutLimits, Shed
from herenow.core.model import Idle, Mode, Presence, Session, Status
from herenow.core.values import replace
from herenow.core.visibility import ViewScope
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.kit.clock import NodeClock
from herenow.node import make_context
from herenow.node.delivery import viewer_sets
from herenow.node.delivery.channels import Channels, watched_by
from herenow.node.delivery.flush import WIDEST_TICK
from herenow.node.delivery.hub import Hub
from herenow.node.people import Outbox
from herenow_testing.world.manual_clock import START
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)

PEOPLE = ("ana", "bob", "cem")
SIGHTS = (ViewScope.FULL, ViewScope.TRUTH, ViewScope.NONE)


class Viewer:
    """A connection, and the model's knowledge of it."""

    def __init__(self, name, people):
        self.people = people
        self.outbox = Outbox(name, self.receive, lambda: None)
        self.has = {}
        self.frames = 0
        self.delivery = None

    def receive(self, frame):
        self.frames += 1
        said = msgspec.json.decode(frame)
        self.delivery = said.get("delivery")
        for status in said.get("statuses", [said]):
            user, value = _value(status)
            assert user in self.outbox.watching, f"{user} is not watched any more"
            assert self.has[user] != value, f"{user} was sent twice: {value}"
            channel = watched_by(self.outbox, self.people.get(user))
            assert value == _body_value(channel.body), "it is what there is to see now, under the rules of now"
            self.has[user] = value


class Stage:
    def __init__(self, seed, crowds=None):
        self.random = random.Random(seed)
        context = make_context(
            MemoryEngine(MemoryStore(2)),
            MemoryLedger(),
            node_settings(crowds=crowds or FanoutLimits()),
            clock=NodeClock(START, monotonic=asyncio.get_running_loop().time),
        )
        self.people = context.people
        self.channels = Channels(context.people, context.clock)
        self.hub = Hub(context, self.channels)
        self.viewers = [Viewer(f"v{number}", self.people) for number in range(4)]
        for user in PEOPLE:
            self.people.get(user).refs += 1
        for viewer in self.viewers:
            self.people.get(viewer.outbox.user).watchers.outboxes += (viewer.outbox,)

    def watch(self):
        some = self.random.sample(PEOPLE, self.random.choice([1, 1, 1, 3]))
        self.looks(self.anybody(), *some, sight=self.random.choice(SIGHTS))

    def looks(self, viewer, *users, sight=ViewScope.FULL):
        channels = self.hub.watch(viewer.outbox, [(self.people.get(user), sight) for user in users])
        for user, channel in zip(users, channels, strict=True):
            viewer.has[user] = _body_value(channel.body)  # the answer to the subscribe

    def unwatch(self):
        viewer, person = self.anybody(), self.somebody()
        self.hub.unwatch(viewer.outbox, [person.user])
        viewer.has.pop(person.user, None)

    def resight(self):
        viewer, person = self.anybody(), self.somebody()
        if person.user in viewer.outbox.watching:
            self.hub.change_scope(viewer.outbox, person, self.random.choice(SIGHTS))

    def change(self):
        person = self.somebody()
        status = self.random.choice([Status.ONLINE, Status.AWAY, Status.OFFLINE])
        person.record.presence = replace(Presence(), status=status, since=None if status is Status.OFFLINE else START)
        self.hub.publish(person)

    def doubt(self):
        self.hub.set_stale(self.random.randrange(2), stale=self.random.random() < 0.5)

    def shed(self):
        self.hub.shed(self.random.choice(list(Shed)))

    def act(self):
        """A viewer becomes active or idle."""
        person = self.people.get(self.anybody().outbox.user)
        acts(self, person, active=self.random.random() < 0.5)

    def pause(self):
        self.hub.pause(self.anybody().outbox)

    def resume(self):
        self.hub.resume(self.anybody().outbox)

    def leave(self):
        viewer = self.anybody()
        self.hub.forget(viewer.outbox)
        new = self.viewers[self.viewers.index(viewer)] = Viewer(viewer.outbox.user, self.people)
        self.people.get(new.outbox.user).watchers.outboxes = (new.outbox,)

    async def rest(self):
        await asyncio.sleep(self.random.choice([0.001, 0.015, 0.03, 0.4]))

    def anybody(self):
        return self.random.choice(self.viewers)

    def somebody(self):
        return self.people.get(self.random.choice(PEOPLE))

    async def settle(self):
        self.hub.shed(Shed.NOTHING)
        for viewer in self.viewers:
            self.hub.resume(viewer.outbox)
        await asyncio.sleep(LONGEST_WAVE + 3 * WIDEST_TICK)


CROWDS = {
    "at once": FanoutLimits(),
    "in waves": FanoutLimits(pace_above=2),
    "often in waves": FanoutLimits(pace_above=1),
    "on demand": FanoutLimits(pace_above=1, push_ceiling=2),
    "on demand or at once": FanoutLimits(pace_above=2, push_ceiling=1),
}


@pytest.mark.parametrize("crowds", CROWDS.values(), ids=CROWDS)
@pytest.mark.parametrize(("start", "many"), [(0, viewer_sets.MANY), (100, viewer_sets.MANY), (200, 1), (300, 2)])
async def test_under_random_operations_every_connection_gets_the_latest_status_and_no_duplicate_frame(
    start, crowds, many, monkeypatch
):
    monkeypatch.setattr(viewer_sets, "MANY", many)
    monkeypatch.setattr(viewer_sets, "MOST", 2)
    frames = 0
    for seed in range(start, start + 100):
        stage = Stage(seed, crowds)
        verbs = [stage.watch] * 4 + [stage.change] * 8 + [stage.resight, stage.unwatch] * 2
        verbs += [stage.pause, stage.resume, stage.leave, stage.doubt, stage.shed, stage.act]
        for _ in range(80):
            if stage.random.random() < 0.25:
                await stage.rest()
            stage.random.choice(verbs)()
        await stage.settle()
        for viewer in stage.viewers:
            for user in viewer.outbox.watching:
                channel = watched_by(viewer.outbox, stage.people.get(user))
                assert viewer.outbox in channel.outboxes
                if channel.delivery is DeliveryMode.POLL:
                    assert viewer.has[user]["delivery"] == "poll", f"seed {seed}"
                else:
                    assert viewer.has[user] == _body_value(channel.body), f"seed {seed}"
            assert sorted(viewer.has) == list(viewer.outbox.watching)
            assert viewer.outbox.ready
            assert not viewer.outbox.dirty
            frames += viewer.frames
        assert not stage.hub._flush.touched
        stage.hub.catch_up()
        assert not stage.hub._flush.viewer_sets
        assert not stage.hub.paced_waiting
        assert not stage.channels.behind
    assert frames > 200  # otherwise the test would show nothing


async def test_f7_of_ten_changes_within_a_flush_interval_the_first_is_sent_at_once_and_the_last_at_its_end():
    stage = Stage(0)
    viewer = stage.viewers[0]
    ana = stage.people.get("ana")
    stage.looks(viewer, "ana")
    for number in range(10):
        ana.record.presence = replace(Presence(), status=Status.ONLINE, since=START + number)
        stage.hub.publish(ana)
    await asyncio.sleep(0.1)
    assert viewer.frames == 2
    assert viewer.has["ana"]["since"] == START + 9


async def test_a_second_change_right_after_the_first_waits_for_the_end_of_the_flush_interval():
    stage = Stage(0)
    ana = stage.people.get("ana")
    for viewer in stage.viewers:
        stage.looks(viewer, "ana")
    for number in range(2):
        ana.record.presence = replace(Presence(), status=Status.ONLINE, since=START + number)
        stage.hub.publish(ana)
        assert bool(stage.hub._flush.touched) is bool(number)
        assert {viewer.frames for viewer in stage.viewers} == {1}
    await asyncio.sleep(0.1)
    assert {viewer.frames for viewer in stage.viewers} == {2}
    assert all(viewer.has["ana"]["since"] == START + 1 for viewer in stage.viewers)


async def test_a_viewer_that_does_not_read_is_skipped_while_the_others_get_a_change_at_once():
    stage = Stage(0)
    ana = stage.people.get("ana")
    for viewer in stage.viewers:
        stage.looks(viewer, "ana")
    deaf, *others = stage.viewers
    stage.hub.pause(deaf.outbox)
    ana.record.presence = replace(Presence(), status=Status.ONLINE, since=START)
    stage.hub.publish(ana)
    assert (deaf.frames, {viewer.frames for viewer in others}) == (0, {1})
    stage.hub.resume(deaf.outbox)
    await asyncio.sleep(0.1)
    assert {viewer.frames for viewer in stage.viewers} == {1}
    assert deaf.has["ana"]["since"] == START


async def test_the_reversal_of_a_change_is_sent_only_to_viewers_who_got_the_change():
    """ana goes online and offline within a tick. The first viewer was ready and got the change; the second was not."""
    stage = Stage(0)
    ready, resting = stage.viewers[:2]
    ana, bob = stage.people.get("ana"), stage.people.get("bob")
    for viewer in (ready, resting):
        stage.looks(viewer, "ana")
    stage.looks(resting, "bob")
    for person, status in ((bob, Status.ONLINE), (ana, Status.ONLINE), (ana, Status.AWAY), (ana, Status.OFFLINE)):
        person.record.presence = replace(Presence(), status=status, since=None if status is Status.OFFLINE else START)
        stage.hub.publish(person)
    await asyncio.sleep(0.1)
    assert (ready.frames, resting.frames) == (2, 1)
    assert ready.has["ana"] == resting.has["ana"]


def _value(status):
    """The delivery mark is not part of the value: it only accompanies one."""
    status = {key: value for key, value in status.items() if key not in ("type", "as_of")}
    if status.get("delivery") == "paced":
        del status["delivery"]
    return status["user_id"], status


def _body_value(body):
    return msgspec.json.decode(body + b"}")


async def crowd(size, **limits):
    """Many viewers of ana; every third is active."""
    stage = Stage(0, FanoutLimits(**limits))
    ana = stage.people.get("ana")
    viewers = [Viewer(f"w{number}", stage.people) for number in range(size)]
    for number, viewer in enumerate(viewers):
        person = stage.people.get(viewer.outbox.user)
        person.watchers.outboxes += (viewer.outbox,)
        acts(stage, person, active=number % 3 == 0)
        stage.looks(viewer, "ana")
    return stage, ana, viewers


def acts(stage, person, *, active):
    session = Session("d1", "n1", START, START, START, idle=Idle.NO if active else Idle.SAID)
    person.record.presence = replace(Presence(), sessions=(session,), mode=Mode.BUSY, status=Status.BUSY)
    stage.hub.publish(person)


def becomes(stage, person, status, since=START):
    person.record.presence = replace(Presence(), status=status, since=None if status is Status.OFFLINE else since)
    stage.hub.publish(person)


async def test_a_change_for_300_viewers_is_delivered_over_seconds_and_active_viewers_get_it_first():
    stage, ana, viewers = await crowd(300, pace_above=100)
    becomes(stage, ana, Status.ONLINE)
    heard = []
    for _ in range(100):
        await asyncio.sleep(0.05)
        heard.append({v for v in viewers if v.has["ana"]["status"] == "online"})
        if len(heard[-1]) == len(viewers):
            break
    assert len(heard) == pytest.approx(60, abs=2)  # three seconds
    active = {viewer for number, viewer in enumerate(viewers) if number % 3 == 0}
    assert all(now <= active or now >= active for now in heard)
    assert {viewer.frames for viewer in viewers} == {1}
    assert {viewer.delivery for viewer in viewers} == {"paced"}


async def test_paced_delivery_of_a_change_takes_ten_seconds_at_most():
    stage, ana, viewers = await crowd(2_000, pace_above=100)
    becomes(stage, ana, Status.ONLINE)
    await asyncio.sleep(10.1)
    assert {viewer.has["ana"]["status"] for viewer in viewers} == {"online"}


async def test_a_viewer_waiting_in_paced_delivery_gets_only_the_latest_change():
    stage, ana, viewers = await crowd(300, pace_above=100)
    becomes(stage, ana, Status.ONLINE)
    await asyncio.sleep(1.5)
    becomes(stage, ana, Status.BUSY)
    await asyncio.sleep(5)
    assert {viewer.has["ana"]["status"] for viewer in viewers} == {"busy"}
    assert {viewer.frames for viewer in viewers} == {1, 2}


async def test_with_more_viewers_than_the_push_ceiling_nothing_is_pushed_and_below_it_the_latest_status():
    stage, ana, viewers = await crowd(60, pace_above=20, push_ceiling=50)
    assert ana.watchers.channels[0].sent_body.endswith(b'"delivery":"poll"')
    becomes(stage, ana, Status.ONLINE)
    await asyncio.sleep(12)
    # they subscribed before there were too many viewers
    assert {viewer.delivery for viewer in viewers[:50]} == {"poll"}
    assert {viewer.frames for viewer in viewers[:50]} == {1}
    assert {viewer.frames for viewer in viewers[51:]} == {0}
    becomes(stage, ana, Status.BUSY)
    await asyncio.sleep(12)
    assert sum(viewer.frames for viewer in viewers) == 50
    for viewer in viewers[:20]:
        stage.hub.forget(viewer.outbox)
    await asyncio.sleep(12)
    assert {viewer.has["ana"]["status"] for viewer in viewers[20:]} == {"busy"}
    assert {viewer.delivery for viewer in viewers[20:]} == {"paced"}
    assert {viewer.frames for viewer in viewers[51:]} == {1}


async def test_under_overload_changes_to_away_are_delayed_but_never_changes_to_online_and_offline():
    stage, ana, [viewer] = await crowd(1)
    becomes(stage, ana, Status.ONLINE)
    await asyncio.sleep(1)
    stage.hub.shed(Shed.IDLENESS)
    becomes(stage, ana, Status.AWAY)
    await asyncio.sleep(1)
    assert viewer.has["ana"]["status"] == "online"
    becomes(stage, ana, Status.OFFLINE)
    await asyncio.sleep(1)
    assert viewer.has["ana"]["status"] == "offline"
    becomes(stage, ana, Status.ONLINE)
    await asyncio.sleep(1)
    assert viewer.has["ana"]["status"] == "online"
    becomes(stage, ana, Status.AWAY)
    becomes(stage, ana, Status.AWAY, since=START + 1)
    await asyncio.sleep(1)
    frames = viewer.frames
    stage.hub.shed(Shed.NOTHING)
    await asyncio.sleep(1)
    assert viewer.has["ana"]["since"] == START + 1
    assert viewer.frames == frames + 1


async def test_constant_changes_of_a_user_are_sent_once_per_round_of_paced_delivery():
    stage, ana, viewers = await crowd(300, pace_above=100)
    for number in range(100):
        becomes(stage, ana, Status.ONLINE, since=START + number)
        await asyncio.sleep(0.09)
    assert {viewer.frames for viewer in viewers} <= {2, 3, 4}  # nine seconds are three rounds


async def test_a_number_of_viewers_that_is_briefly_below_the_push_ceiling_sends_no_frame():
    stage, ana, viewers = await crowd(60, pace_above=20, push_ceiling=50)
    await asyncio.sleep(12)
    becomes(stage, ana, Status.ONLINE)
    frames = [viewer.frames for viewer in viewers[20:]]
    for viewer in viewers[:20]:
        stage.hub.unwatch(viewer.outbox, ["ana"])
    assert stage.hub.popular == {DeliveryMode.PACED: 1, DeliveryMode.POLL: 0}
    for viewer in viewers[:20]:
        stage.looks(viewer, "ana")
    becomes(stage, ana, Status.BUSY)
    await asyncio.sleep(12)
    assert [viewer.frames for viewer in viewers[20:]] == frames


async def test_a_viewer_who_got_a_change_early_in_paced_delivery_does_not_get_it_again_later():
    stage, ana, viewers = await crowd(300, pace_above=100)
    idle = viewers[1::3]
    becomes(stage, ana, Status.ONLINE)
    for viewer in idle:
        acts(stage, stage.people.get(viewer.outbox.user), active=True)
    await asyncio.sleep(1.55)
    assert {viewer.frames for viewer in idle} == {1}
    becomes(stage, ana, Status.BUSY)
    await asyncio.sleep(1.4)  # their first slots have passed, and no pause is over
    assert {viewer.frames for viewer in idle} == {1}
    await asyncio.sleep(5)
    assert {viewer.frames for viewer in idle} == {2}


async def test_on_an_overloaded_node_a_new_subscriber_and_the_earlier_ones_all_get_the_current_status():
    stage, ana, [viewer] = await crowd(1)
    becomes(stage, ana, Status.ONLINE)
    stage.hub.shed(Shed.IDLENESS)
    becomes(stage, ana, Status.AWAY)
    newcomer = Viewer("newcomer", stage.people)
    stage.looks(newcomer, "ana")
    await asyncio.sleep(1)
    assert newcomer.has["ana"]["status"] == viewer.has["ana"]["status"] == "away"
    assert newcomer.frames == 0


async def test_marking_statuses_as_stale_also_sends_changes_that_were_delayed_by_overload():
    stage, ana, [viewer] = await crowd(1)
    becomes(stage, ana, Status.ONLINE)
    stage.hub.shed(Shed.TEXT)
    becomes(stage, ana, Status.AWAY)
    await asyncio.sleep(1)
    stage.hub.set_stale(ana.shard, stale=True)
    await asyncio.sleep(1)
    assert (viewer.has["ana"]["status"], viewer.has["ana"]["stale"]) == ("away", True)
