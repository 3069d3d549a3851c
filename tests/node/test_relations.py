"""Relations are cached, invalidated in time, and never used for too long without the ledger."""

import asyncio
from contextlib import suppress

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.errors import Unavailable
from herenow.ports import LedgerChange, RelationRow, Void

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_g10_a_removed_relation_takes_effect_on_other_nodes_within_two_seconds(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await n1.node.viewing.apply_relations([RelationRow("follow", "bob", "ana", remove=True)])
    await world.sleep(0.05)
    assert bob.saw("ana") == ["online", "offline"]
    await world.sleep(2)
    assert far.saw("ana") == ["online", "offline"]
    far.forget()
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(2)
    assert far.shown == {}
    assert await far.watch("ana") == []  # already granted: remembered
    assert far.last("ana").status == "offline"


async def test_without_the_ledger_relations_are_trusted_for_30_seconds_then_all_users_look_offline(world):
    node, ana, bob = await meet(world)
    world.ledger.away = True
    await world.sleep(28)
    assert bob.saw("ana") == ["online"]
    await world.sleep(4)
    assert bob.saw("ana") == ["online", "offline"]
    assert (bob.last("ana").last_seen, bob.last("ana").since) == (None, None)
    with pytest.raises(Unavailable):
        await bob.watch_contacts()
    [told] = await node.node.viewing.statuses("bob", ["ana"])
    assert b'"offline"' in told
    world.ledger.away = False
    await world.sleep(3)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_g6_a_user_first_watched_during_a_ledger_outage_looks_offline_until_it_ends_and_is_counted(world):
    """A denial would be an answer; an error would reach the user needlessly."""
    node, ana, bob = await meet(world)
    await world.befriend("bob", "cy")
    cy = world.client("cy")
    await cy.connect(node)
    unknown = node.node.context.metrics.unknown_pairs
    world.ledger.away = True
    assert await bob.watch("cy", "stranger") == []
    for target in ("cy", "stranger"):
        shown = bob.last(target)
        assert (shown.status, shown.last_seen, shown.since) == ("offline", None, None)
    assert node.node.context.metrics.unknown_pairs > unknown
    [told] = await node.node.viewing.statuses("bob", ["cy"])
    assert b'"offline"' in told
    assert bob.saw("ana") == ["online"]  # known before, and still valid
    world.ledger.away = False
    await world.sleep(1.1)
    assert bob.saw("cy") == ["offline", "online"]
    assert bob.saw("stranger") == ["offline"]


async def test_a_node_tells_why_it_cannot_read_relation_changes_from_the_ledger(world):
    node, ana, bob = await meet(world)
    said = [node.node.access.trouble]
    for away in (True, False):
        world.ledger.away = away
        await world.sleep(1.1)
        said.append(node.node.access.trouble)
    assert said == [None, "The ledger is away.", None]


async def test_a_node_frozen_during_a_ledger_read_does_not_treat_the_ledger_as_unreachable(world):
    """The answer came in time, but the frozen node could not read it."""
    node, ana, bob = await meet(world)
    changes, asking = world.ledger.changes, asyncio.Event()

    async def slow(after, limit):
        asking.set()
        await asyncio.sleep(0.2)
        return await changes(after, limit)

    world.ledger.changes = slow
    await asking.wait()
    node.freeze()
    await world.sleep(60)
    node.thaw()
    await world.sleep(5)
    assert bob.saw("ana") == ["online"]
    assert node.node.context.metrics.ledger_errors == 1


async def test_a_relation_changed_during_a_ledger_outage_takes_effect_afterwards(world):
    node, ana, bob = await meet(world)
    await world.sleep(3)
    world.ledger.away = True
    await world.sleep(60)
    world.ledger.away = False
    await world.ledger.apply([RelationRow("follow", "ana", "bob", remove=True)])
    bob.forget()
    await world.sleep(5)
    assert "online" not in bob.saw("ana")


async def test_a_contact_with_an_end_time_sees_the_user_offline_from_that_time_on(world):
    node = await world.start("n1")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(node)
    await bob.connect(node)
    until = world.now + 20_000
    await node.node.viewing.apply_relations([RelationRow("contact", "ana", "bob", until)])
    await bob.watch("ana")
    assert bob.saw("ana") == ["online"]
    await world.until(until - 100)
    assert bob.saw("ana") == ["online"]
    await world.sleep(1.2)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen is None


async def test_a_prolonged_contact_does_not_end_at_its_old_end_time(world):
    node = await world.start("n1")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(node)
    await bob.connect(node)
    await node.node.viewing.apply_relations([RelationRow("contact", "ana", "bob", world.now + 10_000)])
    await bob.watch("ana")
    await node.node.viewing.apply_relations([RelationRow("contact", "ana", "bob", world.now + 60_000)])
    await world.sleep(30)
    assert bob.saw("ana") == ["online"]
    await world.sleep(32)
    assert bob.saw("ana") == ["online", "offline"]


async def test_a_subscription_to_all_contacts_follows_added_and_removed_contacts(world):
    node = await world.start("n1")
    await world.befriend("bob", "ana")
    ana, bob, cy = world.client("ana"), world.client("bob"), world.client("cy")
    for client in (ana, bob, cy):
        await client.connect(node)
    await bob.watch_contacts()
    assert list(bob.shown) == ["ana"]
    await node.node.viewing.apply_relations([RelationRow("contact", "bob", "cy")])
    await world.sleep(0.1)
    assert bob.saw("cy") == ["online"]
    await node.node.viewing.apply_relations([RelationRow("contact", "bob", "cy", remove=True)])
    await world.sleep(0.1)
    assert bob.saw("cy") == ["online", "offline"]
    await node.node.viewing.apply_relations([RelationRow("contact", "bob", "cy")])
    await world.sleep(0.1)
    assert bob.saw("cy") == ["online", "offline", "online"]


async def test_a_relation_that_was_removed_while_it_was_read_is_not_used(world):
    """The answer is from before the block and arrives after the block is known everywhere."""
    node, ana, bob = await meet(world)
    await world.befriend("bob", "cy")
    cy = world.client("cy")
    await cy.connect(node)
    await world.sleep(8)
    between, held = world.ledger.between, asyncio.get_running_loop().create_future()

    async def slow(viewer, targets, now):
        found = await between(viewer, targets, now)
        if not held.done():
            await held
        return found

    world.ledger.between = slow
    asked = asyncio.ensure_future(bob.watch("cy"))
    await world.sleep(0.1)
    await world.ledger.apply([RelationRow("follow", "cy", "bob", remove=True)])
    await world.sleep(1.1)
    held.set_result(None)
    assert await asked == ["cy"]


async def test_a_node_processes_each_row_of_the_change_table_of_the_ledger_once(world, monkeypatch):
    node, ana, bob = await meet(world)
    await world.sleep(8)
    heard = []
    monkeypatch.setattr(node.node.access, "changed", heard.append)
    await world.ledger.apply([RelationRow("follow", "ana", "bob", remove=True)])
    await world.sleep(10)
    assert [(change.kind, {change.a, change.b}) for change in heard] == [("relation", {"ana", "bob"})]


async def test_after_the_ledger_lost_its_last_transactions_relations_and_revocations_are_read_again(world, monkeypatch):
    """A standby took over without the last transactions: its change table continues below our cursor."""
    node, ana, bob = await meet(world)
    await world.sleep(3)
    world.ledger._follows.discard(("ana", "bob"))  # without an entry in the change table
    world.ledger._voids["eve"] = Void("eve", world.now, world.now + 60_000)
    await world.sleep(5)
    assert bob.saw("ana") == ["online"]
    changes = world.ledger.changes

    async def once(after, limit):
        monkeypatch.undo()
        _, cursor = await changes(after, limit)
        return [LedgerChange("everything", "", "")], cursor

    monkeypatch.setattr(world.ledger, "changes", once)
    await world.sleep(1.5)
    assert bob.saw("ana") == ["online", "offline"]
    assert node.node.admin.revocations.is_void("eve", 1)
    assert node.node.admin.revocations.whole


# --- Facts that change while they are asked for


async def repeat(call, *arguments):
    while True:
        with suppress(Unavailable):
            await call(*arguments)


@pytest.mark.parametrize("delay", [0.001, 0.02])
async def test_g13_a_stranger_who_blocks_and_unblocks_a_user_in_a_loop_does_not_hide_them_from_friends(world, delay):
    node, ana, bob = await meet(world)
    friends = [world.client(f"friend-{number}") for number in range(20)]
    await world.befriend("ana", *(friend.user for friend in friends))
    world.ledger.delay = delay
    viewing = node.node.viewing
    attack = [
        asyncio.create_task(repeat(call, f"stranger-{number}", "ana"))
        for number in range(5)
        for call in (viewing.block, viewing.unblock)
    ]
    try:
        for friend in friends:
            await friend.connect(node)
            assert await friend.watch("ana") == []
            assert friend.saw("ana") == ["online"]
            [told] = await viewing.statuses(friend.user, ["ana"])
            assert b'"online"' in told
    finally:
        for task in attack:
            task.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
    assert bob.saw("ana") == ["online"]


@pytest.mark.parametrize("changed", [LedgerChange("preferences", "ana", ""), LedgerChange("relation", "ana", "cy")])
async def test_g13_a_relation_lookup_disturbed_by_changes_at_every_try_is_repeated_until_it_succeeds(world, changed):
    node, ana, bob = await meet(world)
    await world.befriend("ana", "cy")
    cy = world.client("cy")
    await cy.connect(node)
    unknown = node.node.context.metrics.unknown_pairs
    answer = world.ledger.pair_facts
    busy = True

    async def changing(*arguments, **options):
        found = await answer(*arguments, **options)
        if busy:
            node.node.access.forget(changed)
        return found

    world.ledger.pair_facts = changing
    assert await cy.watch("ana") == []
    assert cy.saw("ana") == ["offline"]
    assert node.node.context.metrics.unknown_pairs > unknown
    await world.sleep(5)
    assert cy.saw("ana") == ["offline"]  # still changing
    busy = False
    await world.sleep(2.1)
    assert cy.saw("ana") == ["offline", "online"]
    assert not node.node.access.in_doubt


async def test_g13_viewers_of_a_user_whose_preferences_keep_changing_see_the_user_again_afterwards(world):
    node, ana, bob = await meet(world)
    await world.sleep(3)  # the rows of their relations in the change table have been read
    answer = world.ledger.pair_facts
    busy = True

    async def changing(*arguments, **options):
        found = await answer(*arguments, **options)
        if busy:
            node.node.access.forget(LedgerChange("preferences", "ana", ""))
        return found

    world.ledger.pair_facts = changing
    node.node.access.forget(LedgerChange("preferences", "ana", ""))
    await node.node.viewing.reevaluation.reevaluate_viewers_of("ana")
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "offline"]
    busy = False
    await world.sleep(2.1)
    assert bob.saw("ana") == ["online", "offline", "online"]
