"""Relations that the ledger does not keep, under moved time: aged, renewed, in doubt, and looked at again."""

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


async def test_a_change_that_nobody_told_of_is_found_before_the_facts_are_too_old(world, app):
    node, ana, bob = await meet(world, app)
    app.part("ana", "bob")
    await world.sleep(TTL * 0.45)
    assert bob.saw("ana") == ["online"]
    await world.sleep(TTL * 0.33)
    assert bob.saw("ana") == ["online", "offline"]
    app.relate("ana", "bob")
    await world.sleep(TTL)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_an_outage_shorter_than_the_spare_time_shows_nothing(world, app):
    node, ana, bob = await meet(world, app)
    await world.sleep(TTL * 0.45)
    app.away = True
    await world.sleep(TTL * 0.45)
    app.away = False
    await world.sleep(TTL)
    assert bob.saw("ana") == ["online"]


async def test_without_answers_a_fact_is_never_believed_longer_than_allowed(world, app):
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


async def test_facts_are_kept_while_they_are_asked_anew(world, app):
    node, ana, bob = await meet(world, app)
    app.delay = 1.5
    await world.sleep(2.8 * TTL)
    assert bob.saw("ana") == ["online"]


async def test_an_idle_cluster_asks_twice_per_age_and_not_more(world, app):
    node, ana, bob = await meet(world, app)
    asked = app.asked
    await world.sleep(10 * TTL)
    assert app.asked - asked <= 20


async def test_told_of_a_change_the_other_nodes_look_again_within_two_seconds(world, app):
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


async def test_told_of_a_change_a_hanging_application_hides_within_a_second(world, app):
    node, ana, bob = await meet(world, app)
    app.delay = 9.0
    await tell(node, ("relation", "ana", "bob"))
    await world.sleep(0.9)
    assert bob.saw("ana") == ["online", "offline"]
    await world.sleep(20)
    assert bob.saw("ana") == ["online", "offline", "online"]  # it was still so


async def test_told_of_a_user_those_who_were_not_affected_hear_nothing(world, app):
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch("ana")
    app.part("ana", "bob")
    await tell(node, ("relations", "ana", ""))
    await world.sleep(0.5)
    assert bob.saw("ana") == ["online", "offline"]
    assert cy.saw("ana") == ["online"]


async def test_told_of_a_user_new_contacts_appear_with_those_who_follow_theirs(world, app):
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch_contacts()
    assert cy.saw("ana") == []
    app.relate("ana", "cy")
    await tell(node, ("relations", "ana", ""))
    await world.sleep(0.5)
    assert cy.saw("ana") == ["online"]


async def test_told_while_an_answer_from_before_is_on_its_way_it_does_not_count(world, app):
    """asked ─▶ the answer is made ─▶ they part, and we are told ─▶ the answer arrives"""
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


async def test_one_that_is_never_answered_does_not_keep_the_others_in_doubt(world, app):
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


async def test_one_that_is_never_answered_takes_nobody_else_out_of_sight(world, app):
    """Neither from who looks at both, nor from who is looked at by both."""
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


async def test_nobody_drowns_the_doubts_of_others_in_their_own(world, app):
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


async def test_a_list_of_contacts_that_was_not_answered_is_followed_later(world, app):
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


async def test_a_room_is_silent_while_nobody_says_who_is_in_it(world, app):
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
        assert await heard()  # the door was left open


async def test_a_membership_grows_old_too(world, app):
    app.rooms |= {("r", "ana"), ("r", "bob")}
    node, ana, bob = await meet(world, app)
    assert await node.node.access.is_member("r", "bob")
    app.rooms.clear()
    await world.sleep(TTL - 2)
    assert await node.node.access.is_member("r", "bob")
    await world.sleep(4)
    assert not await node.node.access.is_member("r", "bob")


async def test_without_the_ledger_nobody_can_tell_us_so_nothing_is_believed(world, app):
    node, ana, bob = await meet(world, app)
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await tell(node, ("relation", "x", "y"))
    await world.sleep(32)
    assert bob.saw("ana") == ["online", "offline"]
    world.ledger.away = False
    await world.sleep(3)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_blocks_and_preferences_are_the_ledgers_whatever_the_application_says(world, app):
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    await cy.watch("ana")
    await node.node.viewing.block("ana", "bob")
    assert bob.saw("ana") == ["online", "offline"]
    await tell(node, ("relations", "ana", ""), ("relation", "ana", "bob"))
    await world.sleep(2 * TTL)  # asked anew, and judged again
    assert bob.saw("ana") == ["online", "offline"]
    assert cy.saw("ana") == ["online"]
    await node.node.viewing.unblock("ana", "bob")
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_away_it_leaves_no_trace_of_who_is_a_stranger(world, app):
    """A denial would be an answer; who is none of theirs stays offline when the application is back."""
    app.relate("ana", "cy")
    node, ana, bob, cy = await meet(world, app, "cy")
    app.away = True
    assert await cy.watch("ana", "bob") == []
    assert cy.saw("ana") == cy.saw("bob") == ["offline"]
    app.away = False
    await world.sleep(3)
    assert cy.saw("ana") == ["offline", "online"]
    assert cy.saw("bob") == ["offline"]


async def test_where_all_may_look_at_all_a_socket_cannot_fill_memory_with_names_it_does_not_want():
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
