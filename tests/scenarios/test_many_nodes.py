"""Three `herenow serve` processes on one Valkey: what viewers see when nodes and connections fail. One fleet for all
tests.

The fault bench (`tests/faults`) does the same at random and in combination; here each situation is separate and named.
"""

import asyncio
from contextlib import suppress

import httpx2
import pytest
import pytest_asyncio
from tests.faults.fleet import LATE, SHARDS, Fleet
from tests.redis_servers import running, trim
from tests.scenarios.stage import Stage

from herenow.engines.redis import ShardKeys

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("many nodes")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory):
    with running() as store:
        fleet = Fleet(tmp_path_factory.mktemp("fleet"), store.url)
        try:
            await fleet.start()
            yield Stage(fleet, store)
        finally:
            await fleet.close()


@pytest_asyncio.fixture(loop_scope="module")
async def stage(whole):
    await whole.settled()
    yield whole
    await whole.clear()


KEPT = 90.0
"""Seconds to wait until a record is dropped from the store: none is dropped for `ledger_writer.KEEP` seconds after a node
missed log entries, as it may when another starts with an empty store.
"""


async def test_e1_a_user_who_moves_to_another_node_before_the_first_one_notices_is_never_shown_offline(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n3", ana)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    n1 = stage.fleet.members["n1"]
    closes = (await n1.metrics()).get("herenow_closes_total", 0)
    device.vanish()
    await device.open(stage.fleet.members["n2"])
    await stage.until_counted(n1, "herenow_closes_total", closes)  # it has noticed
    await stage.until_stored(lambda: stage.holds(ana, 1))
    assert viewer.witness.words(ana) == ["offline", "online"]


async def test_b1_a_user_who_moves_to_another_node_within_the_reconnect_window_is_never_shown_offline(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n3", ana)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    before = len(viewer.witness.all)
    await device.close()
    await stage.until_stored(lambda: stage.holds(ana, 0))
    await device.open(stage.fleet.members["n2"])
    await stage.until_stored(lambda: stage.holds(ana, 1))
    await asyncio.sleep(stage.fleet.timings.grace / 1000)  # the end of a forgotten grace would show by now
    assert viewer.witness.all[before:] == []


async def test_e2_e3_after_a_node_was_killed_and_restarted_only_users_who_stay_away_are_shown_offline(stage):
    ana, gil, bob = await stage.cast("ana", "gil", "bob")
    viewer = await stage.watches(bob, "n2", ana, gil)
    stays, leaves = await stage.comes(ana, "n1"), await stage.comes(gil, "n1")
    await stage.sees(viewer, ana, "online")
    await stage.sees(viewer, gil, "online")
    came_by = stage.fleet.now
    await stage.until_stored(lambda: all(row.renewed_at > came_by for row in stage.fleet.leases))
    n1 = stage.fleet.members["n1"]
    await n1.kill()
    await stage.fleet.look()
    renewals = {row.renewed_at for row in stage.fleet.leases}
    await stage.until(lambda: stays.link is None and leaves.link is None, "their sockets did not end")
    await stays.open(stage.fleet.members["n3"])
    await n1.start()
    await stage.sees(viewer, gil, "offline")
    assert viewer.witness.words(ana) == ["offline", "online"]
    assert viewer.witness.words(gil) == ["offline", "online", "offline"]
    [last] = [shown.last_seen for shown in viewer.witness.all if shown.user == gil and shown.last_seen][-1:]
    assert last in renewals  # one per third of a lease
    await stage.settled()
    await stage.until_stored(lambda: len(stage.fleet.leases) == 3)
    await stage.counts_agree()
    answers = [await node.answers(bob, [ana, gil]) for node in stage.fleet.members.values()]
    assert [[each.status for each in one] for one in answers] == [["online", "offline"]] * 3


async def test_d4_a_mode_ends_on_time_after_the_node_that_accepted_it_died(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n3")
    await stage.sees(viewer, ana, "online")
    n1 = stage.fleet.members["n1"]
    await n1.ask("PUT", "/presence/mode", ana, mode="busy", until=stage.fleet.now + 5_000)
    await stage.sees(viewer, ana, "busy")
    await n1.kill()
    await stage.sees(viewer, ana, "online")
    assert viewer.witness.words(ana) == ["offline", "online", "busy", "online"]


async def test_e5_a_node_cut_off_from_the_live_store_shows_statuses_as_stale_and_no_false_change(stage):
    ana, bob, cy = await stage.cast("ana", "bob", "cy")
    here = await stage.watches(cy, "n1", ana, bob)
    there = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(there, ana, "online")
    await stage.sees(here, ana, "online")
    way = stage.fleet.members["n1"].back
    way.blackhole()
    await stage.until(lambda: any(shown.stale for shown in here.witness.all), "nothing was called stale")
    way.heal()
    await stage.settled()
    await stage.until(
        lambda: not [shown for shown in here.witness.all if shown.user == bob][-1].stale, "stale for ever"
    )
    assert there.witness.words(ana) == ["offline", "online"]
    assert here.witness.words(bob) == ["offline", "online"]
    assert here.witness.words(ana) == ["offline", "online"]


async def test_a10_a_node_that_slept_longer_than_its_lease_writes_its_sessions_again(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    n1 = stage.fleet.members["n1"]
    epochs = (await n1.metrics())["herenow_epochs_total"]
    n1.freeze()
    await stage.until_stored(lambda: len(stage.fleet.epochs) == 2)  # it was found dead
    n1.thaw()
    await stage.until_counted(n1, "herenow_epochs_total", epochs)
    await stage.settled()
    await stage.until_stored(lambda: stage.holds(ana, 1))
    await stage.sees(viewer, ana, "online")
    words = viewer.witness.words(ana)
    assert words in (["offline", "online"], ["offline", "online", "offline", "online"])


async def test_e16_emptying_the_live_store_shows_no_user_offline_and_no_invisible_user_online(stage):
    ana, tom, bob = await stage.cast("ana", "tom", "bob")
    viewer = await stage.watches(bob, "n2", ana, tom)
    await stage.comes(ana, "n1")
    for number, node in enumerate(("n1", "n3")):
        await stage.comes(tom, node, f"d{number}")
    await stage.sees(viewer, tom, "online")
    await stage.fleet.members["n3"].ask("PUT", "/presence/mode", tom, mode="invisible")
    await stage.sees(viewer, tom, "offline")
    await stage.sees(viewer, ana, "online")
    before = len(viewer.witness.all)
    stage.store.client.flushall()
    await stage.until(lambda: any(shown.stale for shown in viewer.witness.all[before:]), "nobody noticed")
    await stage.settled()
    since = viewer.witness.all[before:]
    assert {shown.status for shown in since if shown.user == ana} <= {"online"}
    assert {shown.status for shown in since if shown.user == tom} <= {"offline"}
    answers = await stage.fleet.members["n1"].answers(bob, [ana, tom])
    assert [each.status for each in answers] == ["online", "offline"]


async def test_e17_a_live_store_outage_longer_than_a_node_lease_ends_no_sessions(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    stage.store.stop_the_clock()
    await asyncio.sleep(1.5 * stage.fleet.lease / 1000)
    stage.store.go_on()
    await stage.settled()
    await asyncio.sleep(stage.fleet.timings.grace / 1000 + 2)
    assert viewer.witness.words(ana) == ["offline", "online"]


# Faults of the store and of the connection to it


async def test_e7_a_node_that_missed_log_entries_catches_up_even_after_the_log_was_trimmed(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    n1, n2 = stage.fleet.members["n1"], stage.fleet.members["n2"]
    n2.back.reset()
    await n1.ask("PUT", "/presence/mode", ana, mode="busy")
    await stage.sees(viewer, ana, "busy")
    await stage.settled()
    gaps = (await n2.metrics())["herenow_log_gaps_total"]
    n2.back.cut()
    await n1.ask("PUT", "/presence/mode", ana, mode="away")
    for shard in range(SHARDS):
        trim(stage.store.client, ShardKeys("herenow", shard).log, 0)
    n2.back.heal()
    await stage.sees(viewer, ana, "away")
    assert viewer.witness.words(ana) == ["offline", "online", "busy", "away"]
    assert (await n2.metrics())["herenow_log_gaps_total"] > gaps


async def test_e9_writes_refused_by_the_live_store_are_counted_and_disconnect_no_client(stage):
    ana, bob, cy = await stage.cast("ana", "bob", "cy")
    viewer = await stage.watches(bob, "n2", ana, cy)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    members = list(stage.fleet.members.values())
    people = [viewer, device]
    for option, seconds in (("maxmemory", 1.3 * stage.fleet.lease / 1000), ("min-replicas-to-write", 1)):
        errors = [(await member.metrics())["herenow_engine_errors_total"] for member in members]
        stage.store.client.config_set(option, "1")
        try:
            await device.say("presence.away" if option == "maxmemory" else "presence.active")
            if option == "maxmemory":
                people.append(await stage.comes(cy, "n1"))
            await asyncio.sleep(seconds)
            for member, before in zip(members, errors, strict=True):
                await stage.until_counted(member, "herenow_engine_errors_total", before)
        finally:
            stage.store.client.config_set(option, "0")
        await stage.settled()
        await stage.sees(viewer, ana, "away" if option == "maxmemory" else "online")
    await stage.sees(viewer, cy, "online")
    assert viewer.witness.words(ana) == ["offline", "online", "away", "online"]
    assert viewer.witness.words(cy) == ["offline", "online"]
    assert [client.closed_with for client in people] == [0, 0, 0]
    assert [member.runs for member in members] == [True] * 3


async def test_e10_nodes_with_clocks_two_minutes_apart_end_modes_and_reconnect_windows_on_time(stage):
    """One node was started with a wrong clock, the other got it while running."""
    ana, bob = await stage.cast("ana", "bob")
    n1, n2 = stage.fleet.members["n1"], stage.fleet.members["n2"]
    await n1.kill()
    n1.step_clock(60)
    n2.step_clock(-60)
    try:
        await n1.start()
        viewer = await stage.watches(bob, "n2", ana)
        device = await stage.comes(ana, "n1")
        await stage.sees(viewer, ana, "online")
        until = stage.fleet.now + 2_000
        await n1.ask("PUT", "/presence/mode", ana, mode="busy", until=until)
        await stage.sees(viewer, ana, "busy")
        await stage.sees(viewer, ana, "online")
        over = viewer.witness.all[-1]
        assert over.since == until
        assert until <= over.as_of <= until + LATE
        closes = stage.fleet.now
        await device.close()
        closed = stage.fleet.now
        await stage.sees(viewer, ana, "offline")
        gone = viewer.witness.all[-1]
        assert closes - 100 <= gone.last_seen <= closed + LATE
        ends = gone.last_seen + stage.fleet.timings.grace
        assert ends - 100 <= gone.as_of <= ends + LATE
    finally:
        n1.step_clock(0)
        n2.step_clock(0)
    assert viewer.witness.words(ana) == ["offline", "online", "busy", "online", "offline"]


async def test_e14_a_user_whose_record_left_the_live_store_is_shown_online_to_every_viewer_on_return(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewers = [await stage.watches(bob, node, ana) for node in ("n1", "n2")]
    for node in ("n1", "n3", "n2"):
        device = await stage.comes(ana, node)
        for viewer in viewers:
            await stage.sees(viewer, ana, "online")
        await device.bye()
        for viewer in viewers:
            await stage.sees(viewer, ana, "offline")
        await stage.until_stored(lambda: ana not in stage.fleet.everybody_stored(), KEPT)
    for viewer in viewers:
        assert viewer.witness.words(ana) == ["offline"] + ["online", "offline"] * 3


@pytest.mark.parametrize("seconds", [0.3, 2.5], ids=["for a moment", "for longer than a node waits"])
async def test_e15_e19_writes_sent_to_a_frozen_live_store_leave_no_ghost_session_and_no_duplicate_change(
    stage, seconds
):
    """cy connects and leaves while the store does not answer; dan is set busy. Pending commands run when the server
    resumes.
    """
    cy, dan, bob = await stage.cast("cy", "dan", "bob")
    viewer = await stage.watches(bob, "n2", cy, dan)
    await stage.comes(dan, "n3")
    await stage.sees(viewer, dan, "online")
    await stage.settled()
    n1 = stage.fleet.members["n1"]
    stage.store.stop_the_clock()
    try:
        asked = asyncio.create_task(n1.ask("PUT", "/presence/mode", dan, mode="busy"))
        device = await stage.comes(cy, "n1")
        await device.close()
        await asyncio.sleep(seconds)
    finally:
        stage.store.go_on()
    with suppress(httpx2.HTTPStatusError):
        await asked
    await stage.settled()
    await stage.until_stored(lambda: cy not in (stored := stage.fleet.everybody_stored()) or not stored[cy].sessions)
    await stage.counts_agree()
    told = [await member.answers(bob, [cy, dan]) for member in stage.fleet.up()]
    [(gone, there)] = {tuple(each.status for each in one) for one in told}
    assert gone == "offline"
    assert viewer.witness.words(cy) in (["offline"], ["offline", "online", "offline"])
    last = [shown for shown in viewer.witness.all if shown.user == cy][-1]
    if last.last_seen is not None:  # lost when the socket closed, not when the silence was noticed
        assert last.as_of - last.last_seen < stage.fleet.timings.dead_after + stage.fleet.timings.grace
    assert viewer.witness.words(dan) == ["offline", "online"] + ["busy"] * (there == "busy")
    assert there == "busy" or asked.exception() is not None


async def test_e18_a_device_signed_out_while_its_node_was_cut_off_is_disconnected_and_stays_signed_out(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    n1, n2 = stage.fleet.members["n1"], stage.fleet.members["n2"]
    n1.back.cut()
    await n2.ask("DELETE", "/presence/devices/d1", ana)
    await stage.sees(viewer, ana, "offline")
    assert device.link is not None
    n1.back.heal()
    await stage.until(lambda: device.link is None, "its node did not hear of it")
    assert device.closed_with == 4409
    await stage.settled()
    assert viewer.witness.words(ana) == ["offline", "online", "offline"]
    told = [await member.answers(bob, [ana]) for member in stage.fleet.up()]
    assert [each.status for [each] in told] == ["offline"] * 3
