"""Modes, custom statuses and preferences that are set while the store cannot be written, and hiding without the store."""

import asyncio

import pytest
from tests.node.scenes import meet

from herenow.core.model import Custom, Mode, Platform, Source
from herenow.core.sources import choice_of
from herenow.errors import Unavailable
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)

AWAY = Rule(Fault.UNAVAILABLE)
SILENT = Rule(Fault.SILENCE, limit=3.0)
FROZEN = Rule(Fault.FROZEN, limit=3.0)
REFUSING_WRITES = Rule(Fault.UNAVAILABLE, calls=("commit", "renew", "join", "jump"))
OUTAGES = pytest.mark.parametrize(
    "outage", [AWAY, SILENT, FROZEN, REFUSING_WRITES], ids=["away", "silent", "frozen", "read-only"]
)

KNOWN_WITHIN = 1.6
"""Seconds after which a store that does not answer is known to be away."""

HIDDEN_WITHIN = 2.0
"""Seconds in which every node that reaches the ledger hides a user who went invisible."""


def cut_off(node):
    return Rule(Fault.SILENCE, limit=3.0, node=node.name)


async def scene(world):
    """Two nodes: ana on n1, who is watched by bob on n1 and by cy on n2."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob", "cy")
    ana, bob, cy = world.client("ana"), world.client("bob"), world.client("cy")
    await ana.connect(n1)
    await bob.connect(n1)
    await cy.connect(n2)
    await bob.watch("ana")
    await cy.watch("ana")
    await world.sleep(3)
    return n1, n2, ana, bob, cy


# Modes and custom statuses


@OUTAGES
async def test_a_mode_set_during_a_store_outage_is_accepted_shown_to_own_devices_and_applied_afterwards(world, outage):
    n1, _, ana, _, cy = await scene(world)
    with world.faults.during(outage):
        begin = world.now
        presence, stale = await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        assert (world.now - begin) / 1000 <= KNOWN_WITHIN
        assert (presence.mode, stale) == (Mode.BUSY, True)
        await world.sleep(1)
        assert (ana.own()["mode"], ana.own()["status"]) == ("busy", "busy")
        await world.sleep(5)
        assert world.stored("ana").mode is Mode.AUTO
    await world.sleep(5)
    assert world.stored("ana").mode is Mode.BUSY
    assert cy.last("ana").status == "busy"
    assert "offline" not in cy.saw("ana")
    assert (world.ledger.late, n1.node.context.people.late) == ({}, {})


@OUTAGES
async def test_a_mode_set_during_a_store_outage_is_applied_by_another_node_if_its_node_dies(world, outage):
    n1, n2, _, _, cy = await scene(world)
    phone = world.client("ana", "phone")
    await phone.connect(n2)
    with world.faults.during(outage):
        await world.sleep(2)
        chosen = await n1.node.sessions.set_both("ana", Mode.BUSY, None, Custom("in a call"))
        assert chosen.stale
        n1.kill()
        await world.sleep(5)
    await world.sleep(10)
    assert (world.stored("ana").mode, world.stored("ana").custom) == (Mode.BUSY, Custom("in a call"))
    assert cy.last("ana").status == "busy"
    assert world.ledger.late == {}
    assert not n2.node.context.people.late


async def test_a_mode_set_during_a_store_outage_is_applied_by_a_node_that_starts_after_all_others_died(world):
    n1, n2, _, _, _ = await scene(world)
    with world.faults.during(AWAY):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        n1.kill()
        n2.kill()
    await world.start("n3")
    await world.sleep(40)
    assert world.stored("ana").mode is Mode.BUSY
    assert world.ledger.late == {}


async def test_a_mode_set_for_an_offline_user_during_a_store_outage_is_applied_afterwards(world):
    n1, _, _, _, _ = await scene(world)
    with world.faults.during(AWAY):
        await world.sleep(1)
        presence, stale = await n1.node.sessions.set_mode("dee", Mode.AWAY, None, Source.CALENDAR)
        assert (choice_of(presence, Source.CALENDAR).mode, stale) == (Mode.AWAY, True)
    await world.sleep(5)
    assert choice_of(world.stored("dee"), Source.CALENDAR).mode is Mode.AWAY


async def test_values_set_one_after_another_on_two_nodes_during_a_store_outage_are_all_kept(world):
    n1, n2, ana, _, _ = await scene(world)
    with world.faults.during(AWAY):
        await world.sleep(1)
        await n1.node.sessions.set_custom("ana", Custom("lunch"))
        await n2.node.sessions.set_mode("ana", Mode.BUSY, None, Source.CALL)
        await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
        await world.sleep(2)
        assert (ana.own()["mode"], ana.own()["custom_status"]["text"]) == ("away", "lunch")
    await world.sleep(5)
    record = world.stored("ana")
    assert (record.mode, record.custom, choice_of(record, Source.CALL).mode) == (Mode.AWAY, Custom("lunch"), Mode.BUSY)


async def test_a_newer_mode_that_another_node_commits_replaces_one_that_waits_for_the_store(world):
    n1, n2, _, bob, cy = await scene(world)
    with world.faults.during(cut_off(n1)):
        await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
        await world.sleep(0.5)
        assert not (await n2.node.sessions.set_mode("ana", Mode.BUSY, None)).stale
        await world.sleep(3)
    await world.sleep(10)
    assert world.stored("ana").mode is Mode.BUSY
    assert (bob.last("ana").status, cy.last("ana").status) == ("busy", "busy")
    assert (n1.node.context.people.late, n2.node.context.people.late, world.ledger.late) == ({}, {}, {})


async def test_a_mode_that_ended_during_a_store_outage_does_not_replace_the_one_set_meanwhile(world):
    n1, _, _, _, _ = await scene(world)
    await n1.node.sessions.set_mode("ana", Mode.AWAY, world.now + 5_000)
    with world.faults.during(AWAY):
        await world.sleep(2)
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(10)
    await world.sleep(5)
    assert world.stored("ana").mode is Mode.BUSY


async def test_two_modes_set_on_different_nodes_during_an_outage_end_with_the_later_one_however_they_are_applied(world):
    n1, n2, _, _, _ = await scene(world)
    with world.faults.during(Rule(Fault.SILENCE, limit=3.0, node="n1")):
        with world.faults.during(AWAY):
            await world.sleep(2)
            await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
            await world.sleep(2)
            world.ledger.away = True  # n2 does not learn of the next one before the store is back
            await world.sleep(0.1)
            world.ledger.away = False
            await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(0.2)
    await world.sleep(10)
    assert world.stored("ana").mode is Mode.BUSY


async def test_without_store_and_ledger_a_mode_is_refused_at_once(world):
    n1, _, _, _, _ = await scene(world)
    with world.faults.during(AWAY):
        await world.sleep(1)
        world.ledger.away = True
        for _ in range(2):
            begin = world.now
            with pytest.raises(Unavailable):
                await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
            assert world.now - begin <= 100
            await world.sleep(3)
        world.ledger.away = False
    await world.sleep(5)
    assert world.stored("ana").mode is Mode.AUTO
    assert (await n1.node.sessions.set_mode("ana", Mode.BUSY, None)).stale is False


async def test_a_user_deleted_after_a_mode_was_set_during_a_store_outage_stays_deleted(world):
    n1, n2, _, _, _ = await scene(world)
    with world.faults.during(AWAY):
        await n1.node.sessions.set_both("ana", Mode.BUSY, None, Custom("lunch"))
        await world.sleep(3)
        with pytest.raises(Exception, match="live store is unreachable"):
            await n2.node.admin.delete("ana")
        await world.sleep(2)
    await world.sleep(20)
    record = world.stored("ana")
    assert record is None or (record.mode, record.custom) == (Mode.AUTO, None)
    assert (n1.node.context.people.late, n2.node.context.people.late, world.ledger.late) == ({}, {}, {})


async def test_modes_of_many_users_set_during_a_store_outage_are_all_applied(world):
    n1, n2, _, _, _ = await scene(world)
    users = [f"u{number}" for number in range(1_200)]
    with world.faults.during(AWAY):
        await world.sleep(1)
        for user in users:
            await n1.node.sessions.set_custom(user, Custom(user))
        await world.sleep(2)
        assert len(n1.node.context.people.late) == len(n2.node.context.people.late) == len(users)
    await world.sleep(15)
    assert [world.stored(user).custom for user in users] == [Custom(user) for user in users]
    assert (n1.node.context.people.late, n2.node.context.people.late, world.ledger.late) == ({}, {}, {})


# Preferences


async def test_an_idle_time_set_during_a_store_outage_is_applied_by_a_node_that_lives(world):
    n1, n2, _, _, _ = await scene(world)
    phone = world.client("ana", "phone", Platform.MOBILE)
    await phone.connect(n2)
    with world.faults.during(AWAY):
        presence, stale = await n1.node.sessions.set_idle_after("ana", 60_000)
        assert (presence.idle_after, stale) == (60_000, True)
        n1.kill()
        await world.sleep(2)
    await world.sleep(10)
    assert world.stored("ana").idle_after == 60_000
    assert world.ledger.late == {}


# Hiding


@pytest.mark.parametrize("cut", ["hider", "viewer", "both"])
async def test_a_user_who_goes_invisible_is_hidden_on_all_nodes_in_two_seconds_whichever_is_cut_off(world, cut):
    n1, n2, ana, bob, cy = await scene(world)
    rules = {"hider": [cut_off(n1)], "viewer": [cut_off(n2)], "both": [cut_off(n1), cut_off(n2)]}[cut]
    with world.faults.during(*rules):
        await world.sleep(2)
        await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
        hid = world.now
        await world.sleep(HIDDEN_WITHIN)
        assert [viewer.last("ana").status for viewer in (bob, cy)] == ["offline", "offline"]
        assert ana.own()["mode"] == "invisible"
        [read] = await n2.answers("dee", ["ana"])
        assert read.status == "offline"
        seen_at = [viewer.last("ana").last_seen for viewer in (bob, cy)]
        assert all(at is not None and at <= hid for at in seen_at)
        await world.sleep(5)
    await world.sleep(20)
    assert [viewer.last("ana").status for viewer in (bob, cy)] == ["offline", "offline"]
    # If the lease of ana's node expired, it is the last renewal.
    assert all(viewer.last("ana").last_seen <= at for viewer, at in zip((bob, cy), seen_at, strict=True))
    assert cut == "both" or world.stored("ana").last_seen == seen_at[0]
    await n1.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(3)
    assert [viewer.last("ana").status for viewer in (bob, cy)] == ["online", "online"]


async def test_what_an_invisible_user_sets_during_a_store_outage_does_not_change_last_seen(world):
    n1, _, _, bob, cy = await scene(world)
    with world.faults.during(AWAY):
        await world.sleep(3)
        await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
        await world.sleep(HIDDEN_WITHIN)
        seen_at = [viewer.last("ana").last_seen for viewer in (bob, cy)]
        await n1.node.sessions.set_custom("ana", Custom("tea"))
        await world.sleep(HIDDEN_WITHIN)
        assert [viewer.last("ana").last_seen for viewer in (bob, cy)] == seen_at
    await world.sleep(20)
    assert [viewer.last("ana").last_seen for viewer in (bob, cy)] == seen_at
    assert world.stored("ana").last_seen == seen_at[0]


async def test_a_user_who_was_invisible_during_a_store_outage_only_comes_back_as_if_arriving(world):
    n1, _, _, bob, cy = await scene(world)
    with world.faults.during(AWAY):
        await world.sleep(3)
        await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
        await world.sleep(HIDDEN_WITHIN)
        hid = world.now
        await n1.node.sessions.set_mode("ana", Mode.AUTO, None)
        await world.sleep(HIDDEN_WITHIN)
        assert [viewer.last("ana").status for viewer in (bob, cy)] == ["online", "online"]
        assert all(viewer.last("ana").since >= hid for viewer in (bob, cy))
    await world.sleep(20)
    assert all(viewer.last("ana").since >= hid for viewer in (bob, cy))


@pytest.mark.parametrize("cut", ["hider", "viewer"])
async def test_a_user_who_stops_being_invisible_is_shown_on_all_nodes_in_two_seconds(world, cut):
    n1, n2, _, bob, cy = await scene(world)
    await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(3)
    with world.faults.during(cut_off(n1 if cut == "hider" else n2)):
        await world.sleep(2)
        await n1.node.sessions.set_mode("ana", Mode.AUTO, None)
        await world.sleep(HIDDEN_WITHIN)
        assert [viewer.last("ana").status for viewer in (bob, cy)] == ["online", "online"]
    await world.sleep(20)
    assert [viewer.last("ana").status for viewer in (bob, cy)] == ["online", "online"]


async def test_a_user_unknown_to_a_node_is_hidden_there_while_the_hiding_node_is_cut_off(world):
    n1, n2, _, _, cy = await scene(world)
    await world.client("eve").connect(n1)
    await world.befriend("eve", "cy")
    await world.sleep(2)
    with world.faults.during(cut_off(n1)):
        await world.sleep(2)
        await n1.node.sessions.set_mode("eve", Mode.INVISIBLE, None)
        await world.sleep(HIDDEN_WITHIN)
        [read] = await n2.answers("cy", ["eve"])
        await cy.watch("eve")
        assert (read.status, cy.last("eve").status) == ("offline", "offline")


async def test_hiding_without_an_outage_leaves_nothing_behind_on_any_node(world):
    n1, n2, _, _, _ = await scene(world)
    n3 = await world.start("n3")
    for mode in (Mode.INVISIBLE, Mode.AUTO, Mode.INVISIBLE):
        await n1.node.sessions.set_mode("ana", mode, None)
        await world.sleep(3)
    assert [node.node.context.people.late for node in (n1, n2, n3)] == [{}, {}, {}]


async def test_a_mode_that_hides_is_published_by_the_ledger_also_when_no_answer_was_requested(world):
    n1, n2, _, _, cy = await scene(world)
    with world.faults.during(cut_off(n2)):
        await world.sleep(2)
        await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None, saved=False)
        await world.sleep(HIDDEN_WITHIN)
        assert cy.last("ana").status == "offline"


async def test_the_own_devices_on_another_node_show_a_mode_set_during_a_store_outage(world):
    node, ana, _ = await meet(world)
    other = await world.start("n2")
    phone = world.client("ana", "phone")
    await phone.connect(other)
    await world.sleep(1)
    with world.faults.during(AWAY):
        await node.node.sessions.set_mode("ana", Mode.BUSY, None)
        await asyncio.sleep(2)
        assert [device.own()["mode"] for device in (ana, phone)] == ["busy", "busy"]
