"""Situations F, and those of E about views: subscribing misses no change between snapshot and registration."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.node.scenes import Stalled, meet

from herenow.core.model import Mode
from herenow.core.values import replace as altered
from herenow.errors import Unavailable
from herenow.node.people import REMEMBER_RELEASED
from herenow.node.viewing.subscriptions import BUDGET
from herenow.ports import LedgerChange, RelationRow
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_f1_a_change_while_the_first_status_of_a_new_subscription_is_read_is_not_missed(world):
    """The snapshot is read before the change and answered after the change came by the log."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    await world.sleep(1)
    load = n2.node.context.engine.load
    answered = asyncio.get_running_loop().create_future()

    async def slow_load(users):
        found = await load(users)
        await answered
        return found

    n2.node.context.engine.load = slow_load
    asked = asyncio.ensure_future(bob.watch("ana"))
    await world.sleep(0.1)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(0.1)
    answered.set_result(None)
    await asked
    await world.sleep(1)
    assert bob.saw("ana") == ["busy"]


async def test_f1_a_change_after_the_first_status_of_a_subscription_is_delivered_after_it(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    tail = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await bob.watch("ana")
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
    await tail.release()
    await world.sleep(1)
    assert bob.saw("ana") == ["busy", "away"]  # the log brought online and busy again, and both were older


async def test_f2_a_subscribe_to_500_users_has_one_answer_that_lists_all_denied_users(world):
    node = await world.start("n1")
    friends = [f"u{number}" for number in range(498)]
    await world.ledger.apply([RelationRow("contact", "bob", friend) for friend in friends])
    bob = world.client("bob")
    await bob.connect(node)
    denied = await bob.watch(*friends, "stranger", "nobody")
    assert denied == ["stranger", "nobody"]
    assert list(bob.shown) == friends
    assert len(bob.frames) == 1  # presence.self; the statuses are the answer


class Storm:
    """50 viewers of 100 users each; measures how much of one kind of work is done in one loop iteration at most."""

    viewers = 50
    targets = tuple(f"u{number}" for number in range(100))

    async def begin(self, world):
        self.node = await world.start("n1")
        pairs = [(f"v{number}", target) for number in range(self.viewers) for target in self.targets]
        await world.ledger.apply([RelationRow("contact", *pair) for pair in pairs])
        self.clients = [world.client(f"v{number}") for number in range(self.viewers)]
        for client in self.clients:
            await client.connect(self.node)

    async def watch(self):
        await asyncio.gather(*(client.watch(*self.targets) for client in self.clients))

    @asynccontextmanager
    async def counting(self, monkeypatch, work, size=lambda *_: 1):
        """`size` returns the amount of work of a call."""
        self.done = self.most = in_this_turn = 0
        does = getattr(self.node.node.delivery.hub, work)

        def counted(*args):
            nonlocal in_this_turn
            in_this_turn += size(*args)
            self.done += size(*args)
            self.most = max(self.most, in_this_turn)
            return does(*args)

        async def everything_else():
            nonlocal in_this_turn
            while True:
                await asyncio.sleep(0)
                in_this_turn = 0

        monkeypatch.setattr(self.node.node.delivery, work, counted)
        other = asyncio.create_task(everything_else())
        yield
        other.cancel()


async def test_j5_many_simultaneous_subscriptions_do_not_block_the_event_loop(world, monkeypatch):
    """Otherwise no lease is renewed and no answer is read in time until all work is done."""
    storm = Storm()
    await storm.begin(world)
    async with storm.counting(monkeypatch, "watch", lambda _, wanted: len(wanted)):
        await storm.watch()
    assert all(len(client.shown) == 100 for client in storm.clients)
    assert storm.done == 5_000
    assert storm.most <= BUDGET


async def test_checking_the_visibility_of_all_subscriptions_again_does_not_block_the_event_loop(world, monkeypatch):
    storm = Storm()
    await storm.begin(world)
    await storm.watch()
    node = storm.node.node
    async with storm.counting(monkeypatch, "change_scope"):
        await node.access._apply([LedgerChange("everything", "", "")])
        while storm.done < 5_000:
            await asyncio.sleep(0)
    assert storm.most <= BUDGET


async def test_f3_a_viewer_who_subscribes_to_a_user_twice_gets_one_frame_per_change(world):
    node, ana, bob = await meet(world)
    await bob.watch("ana", "ana")
    await bob.watch("ana")
    bob.forget()
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    assert len(bob.shown["ana"]) == 1
    assert len(bob.of_type("presence.status")) == 1


async def test_f4_a_disconnected_viewer_has_no_subscriptions(world):
    node, ana, bob = await meet(world)
    bob.close()
    await world.sleep(31)
    assert node.node.context.people.find("ana").watchers.channels == ()
    ana.close()
    await world.sleep(31 + REMEMBER_RELEASED / 1000 + 2)
    assert len(node.node.context.people) == 0
    assert node.node.context.people.remembered == 0


async def test_f5_targets_over_the_subscription_limit_are_refused_one_by_one(world):
    world.settings = node_settings(world.settings, max_subscriptions=2)
    node = await world.start("n1")
    await world.befriend("bob", "ana", "cy", "dee")
    ana, bob = world.client("ana"), world.client("bob")
    await bob.connect(node)
    assert await bob.watch("ana", "cy", "dee") == ["dee"]
    assert await bob.watch("ana") == []
    await ana.connect(node)
    await world.sleep(1)
    assert bob.saw("ana") == ["offline", "online"]
    node.node.viewing.unsubscribe(bob.connection.outbox, ["cy"])
    assert await bob.watch("dee") == []


async def test_f6_users_see_their_own_true_status_and_unknown_users_are_denied_like_strangers(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    assert await ana.watch("ana") == []
    assert ana.saw("ana") == ["online"]
    assert await bob.watch("who?", "mallory") == ["who?", "mallory"]


async def test_f7_ten_changes_within_one_flush_interval_are_at_most_two_frames_and_the_last_is_current(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    bob.forget()
    for number in range(10):
        mode = Mode.BUSY if number % 2 == 0 else Mode.AWAY
        await node.node.records.apply("ana", lambda p, now, t, mode=mode: altered(p, mode=mode))
    await world.sleep(0.5)
    assert len(bob.frames) <= 2
    assert bob.last("ana").status == "away"


async def test_f9_a_contact_added_later_appears_in_a_subscription_to_all_contacts(world):
    n1, n2 = await world.start_all("n1", "n2")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n2)
    await bob.connect(n1)
    await bob.watch_contacts()
    assert bob.shown == {}
    await n2.node.viewing.apply_relations([RelationRow("follow", "ana", "bob")])
    await world.sleep(3)
    assert bob.shown == {}
    await n2.node.viewing.apply_relations([RelationRow("follow", "bob", "ana")])
    await world.sleep(2)
    assert bob.saw("ana") == ["online"]
    await n2.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy"]


async def test_a_user_whose_relation_is_removed_looks_unknown_and_is_shown_again_when_it_is_restored(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").last_seen, bob.last("ana").since) == ("offline", None, None)
    bob.forget()
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    assert bob.shown == {}
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob")])
    await world.sleep(0.1)
    assert bob.saw("ana") == ["busy"]


async def test_an_unsubscribed_viewer_gets_no_more_changes(world):
    node, ana, bob = await meet(world)
    node.node.viewing.unsubscribe(bob.connection.outbox, ["ana"])
    bob.forget()
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    assert bob.shown == {}


async def test_e8_an_older_status_change_that_arrives_after_a_newer_one_is_not_shown(world):
    """n2 has read from the log that ana is idle but processes it late; far subscribes meanwhile and reads a newer
    record.
    """
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await world.sleep(1)
    tail, held, late = n2.node.context.engine.tail, asyncio.get_running_loop().create_future(), []

    async def slow_answer(cursors, wait):
        parts = await tail(cursors, wait)
        if parts and not late:
            late.extend(parts)
            await held
        elif parts:  # a reader that applied the older one shows it until this arrives
            await asyncio.sleep(1)
        return parts

    n2.node.context.engine.tail = slow_answer
    await world.sleep(1.1)
    ana.rest()
    await world.sleep(0.3)
    assert late
    ana.act()
    await world.sleep(0.3)
    await far.watch("ana")
    held.set_result(None)
    await world.sleep(3)
    assert far.saw("ana") == ["online"]
    assert bob.saw("ana") == ["online", "away", "online"]


async def test_e14_a_user_who_returns_after_their_record_was_dropped_is_shown_to_all_viewers(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    for node in (n2, n1, n2):
        ana.close()
        await world.sleep(40)
        assert world.stored("ana") is None
        await ana.connect(node)
        await world.sleep(1)
    assert bob.saw("ana") == far.saw("ana") == ["online"] + ["offline", "online"] * 3


async def test_while_the_store_is_unreachable_a_new_subscriber_gets_a_stale_status_from_the_ledger(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob", "cy")
    seen = world.now - 5_000
    await world.ledger.save_last_seen({"cy": seen})
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    with world.faults.during(Rule(Fault.SILENCE, node="n2")):
        await bob.watch("ana", "cy")
        assert (bob.last("ana").status, bob.last("ana").stale) == ("offline", True)
        assert (bob.last("cy").last_seen, bob.last("cy").stale) == (seen, True)
        [told] = await n2.node.viewing.statuses("bob", ["ana"])
        assert b'"stale":true' in told
    await world.sleep(5)
    assert (bob.last("ana").status, bob.last("ana").stale) == ("online", False)
    assert (bob.last("cy").status, bob.last("cy").stale) == ("offline", False)


async def test_an_unsubscribed_contact_is_not_added_again_by_a_subscription_to_all_contacts(world):
    node, ana, bob = await meet(world)
    await world.befriend("bob", "carla")
    await bob.watch_contacts()
    node.node.viewing.unsubscribe(bob.connection.outbox, ["ana"])
    bob.forget()
    await node.node.viewing.apply_relations(follow_each_other("bob", "dora"))
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob")])
    await world.sleep(3)
    assert bob.saw("dora") == ["offline"]
    assert bob.saw("ana") == []
    await bob.watch_contacts()  # subscribed again
    assert bob.saw("ana") == ["busy"]


async def test_unsubscribing_from_all_contacts_also_cancels_a_contact_whose_status_is_being_read(world):
    node, ana, bob = await meet(world)
    await bob.watch_contacts()
    loads = Stalled(node.node.context.engine, "load")
    applied = asyncio.ensure_future(node.node.viewing.apply_relations(follow_each_other("bob", "carla")))
    await world.sleep(0.1)
    assert loads.waiting
    await node.node.viewing.unsubscribe_contacts(bob.connection.outbox)
    bob.forget()
    await loads.release()
    await applied
    await node.node.sessions.set_mode("carla", Mode.BUSY, None)
    await world.sleep(1)
    assert bob.shown == {}


async def test_unsubscribing_from_all_contacts_includes_former_contacts(world):
    node, ana, bob = await meet(world)
    await bob.watch_contacts()
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    assert await node.node.viewing.unsubscribe_contacts(bob.connection.outbox) == ["ana"]
    bob.forget()
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob")])
    await world.sleep(3)
    assert bob.shown == {}


async def test_the_subscription_limit_holds_for_concurrent_subscribes(world):
    world.settings = node_settings(world.settings, max_subscriptions=2)
    node = await world.start("n1")
    for friend in ("ana", "carla", "dora"):
        await world.befriend("bob", friend)
    bob = world.client("bob")
    await bob.connect(node)
    loads = Stalled(node.node.context.engine, "load")
    asked = [asyncio.ensure_future(bob.watch(*users)) for users in (["ana", "carla"], ["dora"])]
    await world.sleep(0.1)
    await loads.release()
    denied = [user for each in asked for user in await each]
    assert len(bob.connection.outbox.watching) == 2
    assert len(denied) == 1


async def test_a_subscription_to_all_contacts_that_failed_is_not_completed_later(world):
    node, ana, bob = await meet(world)
    node.node.viewing.unsubscribe(bob.connection.outbox, ["ana"])
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await bob.watch_contacts()
    world.ledger.away = False
    bob.forget()
    await node.node.viewing.apply_relations(follow_each_other("bob", "carla"))
    await world.sleep(3)
    assert bob.shown == {}


def follow_each_other(a, b):
    return [RelationRow("follow", a, b), RelationRow("follow", b, a)]


async def test_the_subscribed_ids_of_a_viewer_share_memory_with_the_cached_relations_of_the_viewer(world):
    """Subscriptions and pair facts use the same tuple of ids."""
    node = await world.start("n1")
    names = [f"u{number}" for number in range(50)]
    await world.ledger.apply([RelationRow("contact", "bob", name) for name in names])
    bob = world.client("bob")
    await bob.connect(node)
    await bob.watch(*names)
    watching, known = bob.connection.outbox.watching, node.node.access._facts
    assert watching == tuple(sorted(names))
    assert known._ties["bob"].users is watching
    assert known._ties["bob"].others is None
    node.node.viewing.unsubscribe(bob.connection.outbox, ["u7"])
    assert "u7" not in bob.connection.outbox.watching
    assert known.untied("bob", names) == []
