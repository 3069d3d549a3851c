"""Situations of tests/node again on a real Valkey, with the same code and the same simulated time.

Faults of servers and connections (freeze, drop, full) are in `tests/scenarios`.
"""

from collections import Counter
from contextlib import closing

import pytest
from structlog.testing import capture_logs
from tests.cluster import test_cluster
from tests.cluster.redis_world import PatientLoop
from tests.cluster.schedule import SHARDS
from tests.node import (
    test_clock,
    test_devices,
    test_last_seen,
    test_lease,
    test_liveness,
    test_log_reader,
    test_modes,
    test_races,
    test_subscriptions,
)

from herenow.ports import RelationRow
from herenow_testing.world.world import World

SCENES = [
    test_liveness.test_a4_a_stalled_session_reaper_does_not_end_the_session_of_a_user_who_returned,
    test_liveness.test_a5_two_session_reapers_that_expire_a_user_at_once_show_one_change,
    test_lease.test_a10_a_node_frozen_past_its_lease_writes_its_sessions_again_before_it_shows_any_change,
    test_devices.test_c5_a_session_over_the_limit_is_refused_unless_it_replaces_one_in_its_reconnect_window,
    test_devices.test_c7_two_devices_that_set_different_modes_at_once_end_with_the_same_mode,
    test_modes.test_d4_a_mode_ends_on_time_after_the_node_that_stored_it_died,
    test_races.test_e1_a_late_close_on_the_old_node_does_not_end_the_session_on_the_new_node,
    test_cluster.test_e2_only_users_of_a_killed_node_who_do_not_return_are_shown_offline,
    test_cluster.test_e5_a_node_cut_off_for_less_than_lease_and_reconnect_window_shows_no_change,
    test_cluster.test_e5_users_of_a_node_cut_off_for_long_are_shown_offline_once_and_online_after_it_returns,
    test_log_reader.test_e7_after_an_outage_a_node_reads_on_in_the_log_of_the_store_where_it_stopped,
    test_log_reader.test_e7_a_node_catches_up_on_changes_whose_log_entries_were_trimmed_during_an_outage,
    test_subscriptions.test_e8_an_older_status_change_that_arrives_after_a_newer_one_is_not_shown,
    test_cluster.test_e9_a_store_that_refuses_writes_disconnects_no_user,
    test_clock.test_e10_nodes_with_clocks_two_minutes_apart_end_timers_on_time,
    test_subscriptions.test_e14_a_user_who_returns_after_their_record_was_dropped_is_shown_to_all_viewers,
    test_races.test_e15_a_socket_closed_while_its_connect_is_being_written_leaves_no_session_behind,
    test_races.test_e15_a_socket_closed_right_after_it_was_opened_leaves_no_session_behind,
    test_lease.test_e17_a_store_outage_longer_than_the_lease_declares_no_node_dead,
    test_races.test_e18_a_device_signed_out_by_another_node_is_closed_and_its_session_not_written_again,
    test_races.test_e18_a_node_cut_off_beyond_its_lease_does_not_write_a_signed_out_session_again,
    test_races.test_e19_a_timed_out_write_that_runs_later_leaves_no_session_behind_and_shows_no_change_twice,
    test_last_seen.test_h1_last_seen_of_users_of_a_killed_node_is_the_last_lease_renewal_of_the_node,
    test_last_seen.test_h3_last_seen_survives_the_loss_of_the_store,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__.removeprefix("test_"))
def test_a_situation_tested_in_memory_also_holds_on_a_real_valkey(scene, store):
    play(store, scene)


VIEWERS = 10_000


def test_e11_a_status_change_for_ten_thousand_viewers_on_four_nodes_is_one_log_entry(store):
    """Viewers are connections without sockets: the test counts store calls of the nodes."""

    async def tell(world):
        nodes = await world.start_all("n1", "n2", "n3", "n4")
        viewers = [world.client(f"v{number}") for number in range(VIEWERS)]
        await world.ledger.apply([RelationRow("contact", "ana", viewer.user) for viewer in viewers])
        ana = world.client("ana")
        await ana.connect(nodes[0])
        for number, viewer in enumerate(viewers):
            viewer.open(nodes[number % 4])
        await world.sleep(2)
        for viewer in viewers:
            assert await viewer.watch("ana") == []
        await world.sleep(5)

        async def asked_while(change):
            """Calls per command in the following second, and the number of new log entries."""
            entries, calls = await store.entries(), store.calls()
            change()
            await world.sleep(1)
            return await store.entries() - entries, store.calls() - calls

        none, at_rest = await asked_while(lambda: None)
        one, commands = await asked_while(ana.rest)
        assert (none, one) == (0, 1)
        assert commands["publish"] == commands["spublish"] == 0
        assert (commands - at_rest).total() < VIEWERS / 100, (at_rest, commands)
        assert Counter(len(viewer.shown["ana"]) for viewer in viewers) == {2: VIEWERS}
        assert Counter(viewer.last("ana").status for viewer in viewers) == {"away": VIEWERS}

    play(store, tell)


def play(store, scene):
    """Run a scene in its own world on its own loop."""

    async def tell():
        await store.begin()
        world = World(shards=SHARDS, store=store)
        try:
            await scene(world)
        finally:
            await world.close()
            await store.close()

    with capture_logs() as logs, closing(PatientLoop()) as loop:
        loop.run_until_complete(tell())
    assert not [line for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")]
