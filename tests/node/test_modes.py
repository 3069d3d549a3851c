"""Situations D: modes and custom texts, and when they end."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Custom, Mode, Source
from herenow.core.shards import shard_of
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_d1_a_busy_user_who_leaves_is_shown_offline_and_is_busy_again_on_return(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    ana.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "busy", "offline"]
    await world.sleep(300)
    await ana.connect(node)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy", "offline", "busy"]


async def test_d1_mode_and_custom_text_of_a_user_are_saved_to_the_ledger(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await node.node.sessions.set_custom("ana", Custom("in the garden"))
    ana.close()
    await world.sleep(40)
    choice = world.ledger.people["ana"].choice
    assert choice is not None
    assert (choice.mode, choice.custom) == (Mode.BUSY, Custom("in the garden"))


async def test_d2_mode_busy_with_an_end_time_ends_on_time_and_the_user_is_shown_online(world):
    node, ana, bob = await meet(world)
    until = world.now + 1_800_000
    await node.node.sessions.set_mode("ana", Mode.BUSY, until)
    for _ in range(18):
        await world.sleep(99)
        ana.act()
    await world.until(until - 100)
    assert bob.saw("ana") == ["online", "busy"]
    await world.sleep(1.1)
    assert bob.saw("ana") == ["online", "busy", "online"]
    assert ana.own()["mode"] == "auto"


async def test_d2_when_mode_busy_ends_a_user_who_was_idle_is_shown_away(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, world.now + 400_000)
    await world.sleep(402)
    assert bob.saw("ana") == ["online", "busy", "away"]


async def test_d3_a_mode_that_ends_while_the_user_is_offline_shows_no_change_and_is_over_on_return(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, world.now + 60_000)
    ana.close()
    await world.sleep(31)
    bob.forget()
    await world.sleep(60)
    assert bob.shown == {}
    await ana.connect(node)
    await world.sleep(1)
    assert bob.saw("ana") == ["online"]
    assert ana.own()["mode"] == "auto"


async def test_d4_a_mode_ends_on_time_after_the_node_that_stored_it_died(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    phone, looker = world.client("ana", "phone"), world.client("bob", "far")
    await phone.connect(n2)
    await looker.connect(n2)
    await looker.watch("ana")
    until = world.now + 60_000
    await n1.node.sessions.set_mode("ana", Mode.BUSY, until)
    await world.sleep(1)
    n1.kill()
    await world.until(until + 1000)
    assert looker.saw("ana") == ["online", "busy", "online"]


async def test_the_end_of_a_mode_does_not_clear_a_later_mode(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, world.now + 10_000)
    await world.sleep(9.9)
    await node.node.sessions.set_mode("ana", Mode.AWAY, world.now + 60_000)
    await world.sleep(30)
    assert bob.saw("ana") == ["online", "busy", "away"]


async def test_d6_a_custom_text_of_joined_emoji_is_delivered_unchanged(world):
    node, ana, bob = await meet(world)
    family = "👨‍👩‍👧‍👦" * 14 + "ab"
    assert len(family) == 100
    await node.node.sessions.set_custom("ana", Custom(family, "🌱"))
    await world.sleep(0.1)
    assert bob.last("ana").custom == family
    assert ana.own()["custom_status"] == {"text": family, "emoji": "🌱", "expires_at": None}


async def test_d7_clearing_the_mode_keeps_the_custom_text_and_clearing_the_text_keeps_the_mode(world):
    node, ana, bob = await meet(world)
    choices = node.node.sessions.modes
    await choices.set_both("ana", Mode.BUSY, None, Custom("writing"))
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").custom) == ("busy", "writing")
    assert len(bob.shown["ana"]) == 2  # both changed in one frame
    await choices.set_mode("ana", Mode.AUTO, None)
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").custom) == ("online", "writing")
    await choices.set_mode("ana", Mode.BUSY, None)
    await choices.set_custom("ana", None)
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").custom) == ("busy", None)


async def test_d8_setting_a_custom_text_makes_no_idle_user_active_and_keeps_no_session_alive(world):
    node, ana, bob = await meet(world)
    await world.sleep(310)
    assert bob.saw("ana") == ["online", "away"]
    await node.node.sessions.set_custom("ana", Custom("asleep"))
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away"]
    ana.vanish()
    for _ in range(12):
        await world.sleep(10)
        await node.node.sessions.set_custom("ana", Custom(f"asleep {world.now}"))
    await world.sleep(5)
    assert bob.saw("ana") == ["online", "away", "offline"]
    assert bob.last("ana").custom is None


async def test_d8_a_custom_text_ends_at_its_end_time(world):
    node, ana, bob = await meet(world)
    until = world.now + 20_000
    await node.node.sessions.set_custom("ana", Custom("lunch", "", until))
    await world.until(until - 100)
    assert bob.last("ana").custom == "lunch"
    await world.sleep(1.1)
    assert bob.last("ana").custom is None


async def test_a_mode_is_accepted_during_a_ledger_outage_and_written_afterwards(world):
    node, _, bob = await meet(world)
    world.ledger.away = True
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    assert bob.saw("ana") == ["online", "busy"]
    await world.sleep(20)
    world.ledger.away = False
    await world.sleep(5)
    choice = world.ledger.people["ana"].choice
    assert choice is not None
    assert choice.mode is Mode.BUSY


async def test_a_mode_set_through_a_node_that_is_cut_off_is_not_applied_after_a_later_one(world):
    """Busy through a node that is cut off, then invisible through another: the first must not be applied later."""
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        assert (await n1.node.sessions.set_mode("ana", Mode.BUSY, None)).stale  # sent, but not answered
        await n2.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
        assert far.saw("ana") == ["online", "offline"]
    await world.sleep(30)
    assert far.saw("ana") == ["online", "offline"]
    assert bob.last("ana").status == "offline"
    assert world.stored("ana").mode is Mode.INVISIBLE


# Sources


async def test_d9_a_mode_set_by_a_service_does_not_erase_the_mode_that_the_user_chose(world):
    node, ana, bob = await meet(world)
    choices = node.node.sessions.modes
    await choices.set_mode("ana", Mode.AWAY, None)
    await choices.set_mode("ana", Mode.BUSY, world.now + 60_000, Source.SERVICE)
    await world.sleep(61)
    assert bob.saw("ana") == ["online", "away"]
    await choices.set_mode("ana", Mode.BUSY, None, Source.CALENDAR)
    await choices.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away", "busy"]
    assert (ana.own()["mode"], ana.own()["mode_source"]) == ("busy", "calendar")


async def test_d9_when_the_mode_of_a_call_ends_that_of_the_calendar_is_shown_even_if_the_node_died(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    phone, looker = world.client("ana", "phone"), world.client("bob", "far")
    await phone.connect(n2)
    await looker.connect(n2)
    await looker.watch("ana")
    until = world.now + 60_000
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None, Source.CALENDAR)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, until, Source.CALL)
    await n1.node.sessions.set_custom("ana", Custom("talking", "", until), Source.CALL)
    await world.sleep(1)
    n1.kill()
    await world.until(until + 1000)
    assert looker.saw("ana") == ["online", "away", "busy", "away"]
    assert looker.last("ana").custom is None
    await world.sleep(60)
    assert looker.saw("ana") == ["online", "away", "busy", "away"]
    assert world.stored("ana").mode_source is Source.CALENDAR


async def test_d9_a_mode_set_by_a_schedule_ends_on_time_while_no_user_is_connected(world):
    node, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await node.node.sessions.set_mode("ana", Mode.BUSY, world.now + 60_000, Source.SCHEDULE)
    ana.close()
    bob.close()
    node.kill()
    await world.sleep(120)
    record = world.stored("ana")
    assert record is None or (record.mode, record.sources) == (Mode.AUTO, ())
    choice = world.ledger.people["ana"].choice
    assert (choice.mode, choice.sources) == (Mode.AUTO, ())
    assert n2.node


async def test_d9_modes_and_texts_set_by_user_and_services_survive_the_loss_of_the_store(world):
    node, ana, bob = await meet(world)
    choices = node.node.sessions.modes
    await choices.set_mode("ana", Mode.AWAY, world.now + 120_000)
    await choices.set_mode("ana", Mode.BUSY, None, Source.CALL)
    await choices.set_custom("ana", Custom("talking"), Source.CALL)
    ana.close()
    bob.close()
    await world.sleep(40)
    assert world.ledger.people["ana"].choice.sources == world.stored("ana").sources
    node.kill()
    world.store.empty()
    n2 = await world.start("n2")
    looker = world.client("bob", "far")
    await looker.connect(n2)
    await looker.watch("ana")
    await ana.connect(n2)
    await world.sleep(15)
    assert (looker.last("ana").status, looker.last("ana").custom) == ("away", "talking")
    assert ana.own()["mode_source"] == "user"
    await world.sleep(90)
    assert (looker.last("ana").status, ana.own()["mode_source"]) == ("busy", "call")


async def test_d9_modes_set_by_services_that_a_store_rollback_lost_are_written_again(world):
    node, ana, bob = await meet(world)
    shard = shard_of("ana", len(world.store.shards))
    world.faults.remember(shard)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None, Source.CALL)
    await node.node.sessions.set_mode("ana", Mode.AWAY, None, Source.SCHEDULE)
    await world.sleep(1)
    world.faults.roll_back(shard)
    await world.sleep(30)
    assert bob.saw("ana") == ["online", "busy"]
    assert [each.source for each in world.stored("ana").sources] == [Source.CALL, Source.SCHEDULE]


async def test_d9_a_user_made_invisible_by_a_service_until_a_time_is_shown_again_at_that_time(world):
    node, ana, bob = await meet(world)
    hidden, until = world.now, world.now + 60_000
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, until, Source.SERVICE)
    await world.sleep(30)
    ana.act()
    assert (bob.last("ana").status, bob.last("ana").last_seen) == ("offline", hidden)
    await world.until(until + 1000)
    assert (bob.last("ana").status, bob.last("ana").since) == ("online", until)
