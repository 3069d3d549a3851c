"""Relations kept by the application, under simulated time: aging, refresh, unanswered lookups and reevaluation."""

import asyncio

import pytest

from herenow.core.model import Mode
from herenow.core.visibility import ViewScope
from herenow.errors import Unavailable
from herenow.node.viewing.subscriptions import MUTED
from herenow.ports import LedgerChange, Relation
from herenow.relations import OpenRelations
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

TTL = 100.0


class Application:
    """A source that answers at once, late, or not at all."""

    def __init__(self):
        self.pairs = set()
        self.rooms = set()
        self.delay = 0.0
        self.away = False
        self.asked = 0
        self.stumbles_over = None

    def relate(self, a, b):
        self.pairs.add(frozenset((a, b)))

    def part(self, a, b):
        self.pairs.discard(frozenset((a, b)))

    async def between(self, viewer, targets, now):
        pairs = set(self.pairs)
        known = [target for target in targets if target != self.stumbles_over]
        await self._answer(viewer, *(known or targets))
        return [
            Relation(mutual_follow=frozenset((viewer, target)) in pairs) if target in known else None
            for target in targets
        ]

    async def contacts(self, user, now):
        await self._answer(user)
        return sorted(other for pair in self.pairs if user in pair for other in pair - {user})

    async def is_member(self, room, user):
        await self._answer(room, user)
        return (room, user) in self.rooms

    async def _answer(self, *ids):
        self.asked += 1
        await asyncio.sleep(self.delay)
        if self.away or self.stumbles_over in ids:
            raise Unavailable("The application does not answer.")


@pytest.fixture
def app():
    return Application()


@pytest.fixture
async def world(app):
    world = World(relations=app)
    world.settings = node_settings(world.settings, relations="https://app.example", relations_ttl=TTL)
    yield world
    await world.close()


async def meet(world, app, *others):
    node = await world.start("n1")
    app.relate("ana", "bob")
    clients = []
    for name in ("ana", "bob", *others):
        client = world.client(name)
        await client.connect(node)
        clients.append(client)
    await clients[1].watch("ana")
    return node, *clients


async def tell(node, *changes):
    await node.node.viewing.relations_changed([LedgerChange(*change) for change in changes])


async def test_a_relation_change_that_the_application_does_not_report_is_found_by_a_refresh(world, app):
    node, ana, bob = await meet(world, app)
    app.part("ana", "bob")
    await world.sleep(TTL * 0.45)
    assert bob.saw("ana") == ["online"]
    await world.sleep(TTL * 0.33)
    assert bob.saw("ana") == ["online", "offline"]
    app.relate("ana", "bob")
    await world.sleep(TTL)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_a_short_outage_of_the_application_that_keeps_relations_shows_viewers_no_change(world, app):
    node, ana, bob = await meet(world, app)
    await world.sleep(TTL * 0.45)
    app.away = True
    await world.sleep(TTL * 0.45)
    app.away = False
    await world.sleep(TTL)
    assert bob.saw("ana") == ["online"]


async def test_without_answers_of_the_application_a_relation_is_not_used_beyond_its_age_limit(world, app):
    node, ana, bob = await meet(world, app)
    app.away = True
    await world.sleep(TTL - 2)
    assert bob.saw("ana") == ["online"]
    await world.sleep(4)
    assert bob.saw("ana") == ["online", "offline"]
    assert (bob.last("ana").last_seen, bob.last("ana").since) == (None, None)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(60)
    assert bob.saw("ana") == ["online", "offline"]
    app.away = False
    await world.sleep(2.5)
    assert bob.saw("ana") == ["online", "offline", "busy"]


async def test_known_relations_stay_in_use_while_the_application_is_asked_for_them_again(world, app):
    node, ana, bob = await meet(world, app)
    app.delay = 1.5
    await world.sleep(2.8 * TTL)
    assert bob.saw("ana") == ["online"]


async def test_an_idle_node_asks_the_application_for_relations_at_most_twice_per_age_limit(world, app):
    node, ana, bob = await meet(world, app)
    asked = app.asked
    await world.sleep(10 * TTL)
    assert app.asked - asked <= 20


async def test_a_relation_change_reported_by_the_application_takes_effect_on_all_nodes_in_two_seconds(world, app):
    node, ana, bob = await meet(world, app)
    other = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(other)
    await far.watch("ana")
    app.part("ana", "bob")
    await tell(node, ("relation", "bob", "ana"))
    await world.sleep(0.05)
    assert bob.saw("ana") == ["online", "offline"]
    await world.sleep(2)
    assert far.saw("ana") == ["online", "offline"]
    app.relate("ana", "bob")
    await tell(other, ("relations", "ana", ""))
    await world.sleep(2)
    assert bob.saw("ana") == far.saw("ana") == ["online", "offline", "online"]


async def test_after_a_reported_relation_change_the_user_looks_offline_while_the_application_hangs(world, app):
    node, ana, bob = await meet(world, app)
    app.delay = 9.0
    await tell(node, ("relation", "ana", "bob"))
    await world.sleep(0.9)
    assert bob.saw("ana") == ["online", "offline"]
    await world.sleep(20)
    assert bob.saw("ana") == ["online", "offline", "online"]  # unchanged


async def test_a_reported_change_of_all_relations_of_a_user_sends_nothing_to_unaffected_viewers(world, app):
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch("ana")
    app.part("ana", "bob")
    await tell(node, ("relations", "ana", ""))
    await world.sleep(0.5)
    assert bob.saw("ana") == ["online", "offline"]
    assert cy.saw("ana") == ["online"]


async def test_a_reported_change_of_all_relations_of_a_user_adds_new_contacts_to_subscriptions(world, app):
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch_contacts()
    assert cy.saw("ana") == []
    app.relate("ana", "cy")
    await tell(node, ("relations", "ana", ""))
    await world.sleep(0.5)
    assert cy.saw("ana") == ["online"]


async def test_a_relation_requested_before_a_reported_change_and_answered_after_it_is_not_used(world, app):
    """request ─▶ the answer is computed ─▶ the relation ends, and this is reported ─▶ the answer arrives"""
    node, ana, bob = await meet(world, app)
    for kind, a, b in (("relation", "ana", "bob"), ("relations", "ana", ""), ("relations", "bob", "")):
        app.relate("ana", "bob")
        await tell(node, ("relations", "ana", ""))
        await world.sleep(1)
        app.delay = 0.4
        looking = asyncio.create_task(node.node.access.renew("bob", ["ana"]))
        await world.sleep(0.2)
        app.part("ana", "bob")
        await tell(node, (kind, a, b))
        await looking
        verdict = node.node.access.verdict("bob", "ana")
        assert verdict is None or verdict.scope == ViewScope.NONE
        await world.sleep(2)
        assert bob.last("ana").status == "offline"
        app.delay = 0.0


async def test_a_relation_that_the_application_never_answers_does_not_block_other_relations(world, app):
    node, ana, bob, eve = await meet(world, app, "eve")
    app.stumbles_over = "x"
    assert await eve.watch("x") == []
    assert eve.saw("x") == ["offline"]
    app.away = True
    await tell(node, ("relation", "ana", "bob"))
    await world.sleep(1)
    assert bob.last("ana").status == "offline"
    app.away = False
    await world.sleep(30)
    assert bob.last("ana").status == "online"
    asked = app.asked
    await world.sleep(20)
    assert app.asked - asked <= 40


async def test_a_relation_that_the_application_never_answers_does_not_hide_other_users(world, app):
    """Neither for a viewer of both users, nor for a user whom both view."""
    app.relate("ana", "eve")
    node, ana, bob, eve = await meet(world, app, "eve")
    app.stumbles_over = "x"
    await bob.watch("ana", "x")
    assert (bob.last("ana").status, bob.last("x").status) == ("online", "offline")
    await world.sleep(2 * TTL)
    assert bob.saw("ana") == ["online"]
    await eve.watch("ana")
    app.stumbles_over = "eve"
    await tell(node, ("relations", "ana", ""))
    await world.sleep(5)
    assert bob.saw("ana") == ["online"]
    assert eve.saw("ana") == ["online", "offline"]


async def test_many_unanswered_relation_lookups_of_one_user_do_not_displace_those_of_other_users(world, app):
    node, ana, bob, eve = await meet(world, app, "eve")
    app.away = True
    for n in range(200):
        await eve.watch(f"x{n}")
    await tell(node, ("relation", "ana", "bob"))
    await world.sleep(1)
    assert bob.last("ana").status == "offline"
    app.away, app.stumbles_over = False, "eve"
    await world.sleep(5)
    assert bob.last("ana").status == "online"


async def test_a_contact_list_that_the_application_did_not_answer_is_read_again_later(world, app):
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch_contacts()
    app.relate("ana", "cy")
    app.away = True
    await tell(node, ("relation", "ana", "cy"))
    await world.sleep(5)
    assert cy.saw("ana") == []
    app.away = False
    await world.sleep(3)
    assert cy.saw("ana") == ["online"]


async def test_typing_in_a_room_is_not_delivered_while_the_membership_of_the_receiver_is_unknown(world, app):
    app.rooms |= {("r", "ana"), ("r", "bob")}
    node, ana, bob = await meet(world, app)
    rooms = node.node.viewing.typing_rooms
    await rooms.open_room(bob.connection, "r")

    async def heard():
        before = len(bob.of_type("presence.typing"))
        await rooms.typing(ana.connection, None, "r", typing=True)
        await world.sleep(3)
        return len(bob.of_type("presence.typing")) > before

    assert await heard()
    app.rooms.discard(("r", "bob"))
    await tell(node, ("member", "r", "bob"))
    assert not await heard()
    app.rooms.add(("r", "bob"))
    await rooms.open_room(bob.connection, "r")
    assert await heard()
    for change in (("members", "r", ""), ("relations", "bob", "")):
        app.away = True
        await tell(node, change)
        await world.sleep(1)
        app.away = False
        app.stumbles_over = "bob"
        assert not await heard()
        app.stumbles_over = None
        assert await heard()  # the room was left open


async def test_a_room_membership_answered_by_the_application_expires_at_the_age_limit(world, app):
    app.rooms |= {("r", "ana"), ("r", "bob")}
    node, ana, bob = await meet(world, app)
    assert await node.node.access.is_member("r", "bob")
    app.rooms.clear()
    await world.sleep(TTL - 2)
    assert await node.node.access.is_member("r", "bob")
    await world.sleep(4)
    assert not await node.node.access.is_member("r", "bob")


async def test_relations_of_the_application_expire_in_a_ledger_outage_because_changes_cannot_arrive(world, app):
    node, ana, bob = await meet(world, app)
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await tell(node, ("relation", "x", "y"))
    await world.sleep(32)
    assert bob.saw("ana") == ["online", "offline"]
    world.ledger.away = False
    await world.sleep(3)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_blocks_are_in_force_even_if_the_application_keeps_the_relations(world, app):
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch("ana")
    await node.node.viewing.block("ana", "bob")
    assert bob.saw("ana") == ["online", "offline"]
    await tell(node, ("relations", "ana", ""), ("relation", "ana", "bob"))
    await world.sleep(2 * TTL)  # refreshed and evaluated again
    assert bob.saw("ana") == ["online", "offline"]
    assert cy.saw("ana") == ["online"]
    await node.node.viewing.unblock("ana", "bob")
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_g12_a_block_succeeds_while_the_application_that_keeps_relations_is_down(world, app):
    node, ana, bob = await meet(world, app)
    app.away = True
    await node.node.viewing.block("ana", "bob")
    await world.sleep(0.6)
    assert bob.saw("ana") == ["online", "offline"]
    app.away = False
    await world.sleep(3)
    assert bob.saw("ana") == ["online", "offline"]
    assert await node.node.viewing.blocked("ana") == ["bob"]


async def test_an_outage_of_the_application_does_not_reveal_which_users_are_strangers(world, app):
    """A denial would be an answer; strangers stay offline when the application is back."""
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    app.away = True
    assert await cy.watch("ana", "bob") == []
    assert cy.saw("ana") == cy.saw("bob") == ["offline"]
    app.away = False
    await world.sleep(3)
    assert cy.saw("ana") == ["offline", "online"]
    assert cy.saw("bob") == ["offline"]


async def test_if_everyone_may_see_everyone_a_client_cannot_fill_memory_with_ids_it_unsubscribed_from():
    ledger = MemoryLedger()
    world = World(ledger=ledger, relations=OpenRelations(ledger))
    try:
        node = await world.start("n1")
        ana = world.client("ana")
        await ana.connect(node)
        outbox, subscriptions = ana.connection.outbox, node.node.viewing.subscriptions
        await ana.watch_contacts()
        for number in range(MUTED // 500 + 5):
            names = [f"{number}-{other}" for other in range(500)]
            await subscriptions.subscribe(outbox, names)
            subscriptions.unsubscribe(outbox, names)
        assert not outbox.watching
        assert len(outbox.muted) <= MUTED
    finally:
        await world.close()
