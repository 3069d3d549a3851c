"""Orders of events that could leave a ghost, a duplicate or a lost change."""

import asyncio

import pytest
from tests.node.scenes import Stalled, meet, slow_look

from herenow.core.model import Mode, Platform
from herenow.errors import Unavailable, UnknownOutcome
from herenow.wire.codes import Close
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_e1_a_late_close_on_the_old_node_does_not_end_the_session_on_the_new_node(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    bob.forget()
    old = ana.link
    ana.vanish()
    await ana.connect(n2)
    await world.sleep(20)
    old.closed()
    await world.sleep(100)
    assert bob.shown == {}
    [session] = world.stored("ana").sessions
    assert (session.holder, session.live) == (n2.node.context.authority.epoch, True)


async def test_e15_a_socket_closed_while_its_connect_is_being_written_leaves_no_session_behind(world):
    node, ana, bob = await meet(world)
    cy = world.client("cy")
    commits = Stalled(node.node.context.engine, "commit")
    await cy.connect(node)
    await world.sleep(0.1)
    assert commits.waiting == 1
    cy.close()
    await world.sleep(0.1)
    await commits.release()
    await world.sleep(40)
    assert world.stored("cy") is None
    assert world.ledger.people["cy"].last_seen is not None
    assert node.node.context.metrics.sessions == 2


async def test_e15_a_socket_closed_right_after_it_was_opened_leaves_no_session_behind(world):
    node, ana, bob = await meet(world)
    cy = world.client("cy")
    cy.open(node)
    cy.close()
    await world.sleep(40)
    assert world.stored("cy") is None
    assert node.node.context.people.find("cy") is None


async def test_e19_a_timed_out_write_that_runs_later_leaves_no_session_behind_and_shows_no_change_twice(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    cy = world.client("cy")
    with world.faults.during(Rule(Fault.LATE, node="n1", calls=("commit",), times=1, reach=8)):
        await cy.connect(n1)
        cy.close()
        await world.sleep(5)
    assert world.faults.taken[Fault.LATE] == 1
    with world.faults.during(Rule(Fault.LATE, node="n1", calls=("commit",), times=1, reach=8)):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(5)
    assert world.faults.taken[Fault.LATE] == 2
    await world.faults.run_late()
    await world.sleep(60)
    assert world.stored("cy") is None
    assert bob.saw("ana") == far.saw("ana") == ["online", "busy"]
    assert [shown.status for shown in far.shown["ana"]] == ["online", "busy"]


async def test_a_write_seen_in_the_log_before_its_answer_arrives_is_shown_once_and_in_order(world):
    """n1's commit is executed; before its answer arrives, n2 has changed the record again and n1 has read that in the
    log.
    """
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(1)
    commit = n1.node.context.engine.commit
    held = asyncio.get_running_loop().create_future()

    async def slow_answer(batch):
        answer = await commit(batch)
        await held
        return answer

    n1.node.context.engine.commit = slow_answer
    asked = asyncio.ensure_future(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    await world.sleep(0.1)
    await n2.node.sessions.set_mode("ana", Mode.AWAY, None)
    await world.sleep(0.2)
    held.set_result(None)
    await asked
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy", "away"]
    assert (
        n1.node.context.people.find("ana").record.stored
        == world.store.shards[n1.node.context.people.find("ana").shard].records["ana"]
    )


async def test_a_conflict_answer_older_than_what_the_log_brought_does_not_revert_the_record(world):
    """n1's commit conflicts with v2; before that answer arrives, the log has brought v3."""
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(1)
    tail = Stalled(n1.node.context.engine, "tail")
    await world.sleep(1.1)
    await n2.node.sessions.set_mode("ana", Mode.AWAY, None)  # v2, not yet known to n1
    commit = n1.node.context.engine.commit
    held = asyncio.get_running_loop().create_future()

    async def slow_answer(batch):
        answer = await commit(batch)
        await held
        return answer

    n1.node.context.engine.commit = slow_answer
    asked = asyncio.ensure_future(n1.node.records.apply("ana", lambda p, now, t: p))
    ana.rest()
    await world.sleep(0.1)
    await n2.node.sessions.set_mode("ana", Mode.BUSY, None)  # v3
    await tail.release()
    await world.sleep(0.2)
    held.set_result(None)
    n1.node.context.engine.commit = commit
    await asked
    await world.sleep(1)
    assert bob.last("ana").status == "busy"
    assert world.stored("ana").mode is Mode.BUSY


async def test_a_change_learned_from_a_write_conflict_is_shown_even_if_nothing_is_left_to_write(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(1)
    tail = Stalled(n1.node.context.engine, "tail")
    await world.sleep(1.1)
    await n2.node.sessions.set_mode("ana", Mode.BUSY, None)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)  # conflicts, and finds the mode already set
    assert bob.saw("ana") == ["online", "busy"]
    await tail.release()
    await world.sleep(1)
    assert [shown.status for shown in bob.shown["ana"]] == ["online", "busy"]


async def test_e18_a_device_signed_out_by_another_node_is_closed_and_its_session_not_written_again(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(1)
    assert await n2.node.sessions.sign_out("ana", "d1")
    await world.sleep(1)
    assert ana.closed_with[0][1] == Close.SIGNED_OUT
    assert bob.saw("ana") == ["online", "offline"]
    stored = world.stored("ana")
    assert stored is None or not stored.signed_out, "answered by n1"
    await world.sleep(60)
    assert bob.saw("ana") == ["online", "offline"]


async def test_a7_the_record_of_a_user_stays_short_while_devices_are_signed_out_through_another_node(world):
    n1, n2 = await world.start_all("n1", "n2")
    with world.faults.during(Rule(Fault.SILENCE, node="n1", calls=("tail",))):
        for number in range(120):
            await world.client("ana", f"d{number}").connect(n1)
            assert await n2.node.sessions.sign_out("ana", f"d{number}")
    assert len(world.stored("ana").signed_out) <= 100
    await world.sleep(30)
    stored = world.stored("ana")
    assert stored is None or not stored.signed_out


@pytest.mark.parametrize("asleep", [15, 120])
async def test_e18_a_node_that_slept_past_its_lease_does_not_write_a_signed_out_session_again(world, asleep):
    n1, n2 = await world.start_all("n1", "n2")
    asleep_tab, tab = world.client("ana"), world.client("ana")
    await asleep_tab.connect(n1)
    await tab.connect(n2)
    await world.sleep(5)
    n1.freeze()
    await world.sleep(asleep)
    await tab.bye()
    await world.sleep(5)
    n1.thaw()
    await world.sleep(10)
    assert not asleep_tab.connected
    stored = world.stored("ana")
    assert stored is None or not stored.sessions


async def test_e18_a_node_cut_off_beyond_its_lease_does_not_write_a_signed_out_session_again(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(5)
        assert await n2.node.sessions.sign_out("ana", "d1")
        await world.sleep(20)
        assert ana.connected
    await world.sleep(15)
    assert n1.node.context.metrics.epochs == 1
    assert ana.closed_with[0][1] == Close.SIGNED_OUT
    assert far.saw("ana") == ["online", "offline"]
    assert bob.saw("ana")[-1] == "offline"


@pytest.mark.parametrize("stay", [0, 1, 2])
async def test_a_sign_out_ends_earlier_connections_of_the_device_and_not_later_ones(world, stay):
    """With stay=0, all connections opened after the sign-out have closed again before their node learns of it."""
    n1, n2 = await world.start_all("n1", "n2")
    old, leaving, *new = [world.client("ana") for _ in range(4)]
    await old.connect(n2)
    await leaving.connect(n1)
    await world.sleep(5)
    with world.faults.during(Rule(Fault.SILENCE, node="n2")):
        await world.sleep(8)
        await leaving.bye()
        await world.sleep(5)
        for tab in new:
            await tab.connect(n2)
        for tab in new[stay:]:
            tab.close()
        await world.sleep(2)
    await world.sleep(20)
    assert old.closed_with[0][1] == Close.SIGNED_OUT
    assert [tab.connected for tab in new] == [True] * stay + [False] * (2 - stay)
    stored = world.stored("ana")
    assert (stored is not None and stored.live) == bool(stay)
    assert n2.node.context.metrics.sessions == bool(stay)
    assert n2.node.context.metrics.connections == stay


async def test_a_signed_out_device_may_reconnect_to_the_same_node(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(1)
    await n2.node.sessions.sign_out("ana", "d1")
    await world.sleep(1)
    await ana.connect(n1)
    await world.sleep(30)
    assert ana.connected
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_sign_out_returns_whether_the_device_existed(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    assert not await n2.node.sessions.sign_out("ana", "other")
    ana.close()
    await world.sleep(1)
    assert await n2.node.sessions.sign_out("ana", "d1")  # in grace
    assert bob.saw("ana")[-1] == "offline"
    assert not await n2.node.sessions.sign_out("ana", "d1")


async def test_a_sign_out_closes_the_socket_even_while_the_store_is_unreachable(world):
    n1, ana, bob = await meet(world)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        asked = asyncio.ensure_future(n1.node.sessions.sign_out("ana", "d1"))
        await world.sleep(0.1)
        assert not ana.connected
        await world.sleep(8)
        with pytest.raises(UnknownOutcome):  # sent, but not answered
            await asked
    await world.sleep(3)
    assert bob.saw("ana")[-1] == "online"  # not executed: the device is lost and in grace
    await world.sleep(30)
    assert bob.saw("ana")[-1] == "offline"


async def test_a_mode_that_seems_unchanged_is_verified_with_the_store_before_it_is_acknowledged(world):
    """n2 knows that ana is busy and has not read that she no longer is; setting busy again must not be skipped."""
    n1, _, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    tail = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await n1.node.sessions.set_mode("ana", Mode.AUTO, None)
    await n2.node.sessions.set_mode("ana", Mode.BUSY, None)
    assert world.stored("ana").mode is Mode.BUSY
    await tail.release()
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy", "online", "busy"]


async def test_a_change_that_a_read_finds_before_the_log_brings_it_reaches_the_users_own_device(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "cy")
    ana, cy = world.client("ana"), world.client("cy")
    await cy.connect(n2)
    answer = await slow_look(world, n2, cy, "ana")
    await ana.connect(n2)
    await world.sleep(0.1)
    log = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await answer()
    await log.release()
    await world.sleep(5)
    assert cy.saw("ana")[-1] == "busy"
    assert ana.own()["mode"] == "busy"


async def test_a_stale_status_confirmed_by_a_read_of_another_viewer_is_fresh_for_all(world):
    n1 = await world.start("n1")
    await world.befriend("ana", "bob", "cy")
    bob, cy = world.client("bob"), world.client("cy")
    await bob.connect(n1)
    await cy.connect(n1)
    await world.sleep(1)
    answer = await slow_look(world, n1, cy, "ana")
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("load",), times=1)):
        await bob.watch("ana")
    assert bob.last("ana").stale
    await answer()
    await world.sleep(5)
    assert [viewer.last("ana").stale for viewer in (bob, cy)] == [False, False]


async def test_own_devices_of_an_invisible_user_see_the_remaining_platforms_on_every_node(world):
    n1, n2 = await world.start_all("n1", "n2")
    web, mobile = world.client("ana", "d1", Platform.WEB), world.client("ana", "d1", Platform.MOBILE)
    desktop = world.client("ana", "d9", Platform.DESKTOP)
    await web.connect(n1)
    await mobile.connect(n2)
    await world.sleep(1)
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None)  # a status change announces both
    await world.sleep(1)
    await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(1)
    await desktop.connect(n2)
    await web.watch("ana")
    await desktop.watch("ana")
    mobile.close()
    await world.sleep(60)
    assert world.stored("ana").platforms == {Platform.WEB, Platform.DESKTOP}
    for viewer in (web, desktop):
        assert set(viewer.last("ana").platforms) == {"web", "desktop"}


async def test_a_user_whose_last_viewer_leaves_during_a_bulk_read_is_still_answered_as_online(world):
    n1 = await world.start("n1")
    n2 = await world.start("n2")
    await world.befriend("ana", "bob")
    await world.befriend("ana", "cy")
    ana, bob, cy = world.client("ana"), world.client("bob"), world.client("cy")
    for client, node in ((ana, n2), (bob, n1), (cy, n1)):
        await client.connect(node)
    await bob.watch("ana")
    views = n1.node.viewing.views
    await views.statuses(None, ["gil"])  # the ledger need not be asked again
    loads = Stalled(n1.node.context.engine, "load")
    answer = asyncio.create_task(views.statuses(None, ["ana", "gil"]))
    await world.sleep(0.1)
    bob.close()
    await world.sleep(0.1)
    assert n1.node.context.people.find("ana") is None
    watching = asyncio.create_task(cy.watch("ana"))
    await world.sleep(0.1)
    assert not n1.node.context.people.find("ana").record.known
    await loads.release()
    of_ana, of_gil = await answer
    assert b'"online"' in of_ana
    assert b'"offline"' in of_gil
    await watching


async def test_an_older_ledger_answer_is_not_cached_over_a_newer_one(world):
    node, *_ = await meet(world)
    reader, ledger = node.node.records.reader, world.ledger
    asks, remembered = [], ledger.remembered

    async def slowly(users):
        found = await remembered(users)
        asks.append(asyncio.Event())
        await asks[-1].wait()
        return found

    ledger.remembered = slowly
    first = asyncio.create_task(reader.read(["zoe"]))
    await world.sleep(0.1)
    await ledger.save_last_seen({"zoe": world.now})
    reader.forget("zoe")
    second = asyncio.create_task(reader.read(["zoe"]))
    await world.sleep(0.1)
    asks[0].set()
    [(old, _)] = await first
    asks[1].set()
    [(new, _)] = await second
    ledger.remembered = remembered
    [(kept, _)] = await reader.read(["zoe"])
    assert old.last_seen is None
    assert kept.last_seen == new.last_seen is not None


async def test_bulk_reads_during_a_ledger_outage_leave_no_pending_reads_in_memory(world):
    node, *_ = await meet(world)
    reader = node.node.records.reader

    async def away(users):
        raise Unavailable("away")

    world.ledger.remembered = away
    for number in range(20):
        await reader.read([f"{number}-{other}" for other in range(100)])
    assert not reader._cold._asking
