"""The pauses between restarts of a worker, and when it is given up."""

from itertools import islice

from herenow.workers.restarts import PAUSES, STEADY, Restarts


def test_a_worker_process_that_ran_long_enough_is_restarted_at_once():
    restarts = Restarts()
    assert [restarts.pause_after(STEADY) for _ in range(50)] == [0.0] * 50


def test_a_worker_process_that_keeps_dying_quickly_is_restarted_after_growing_pauses_and_then_given_up():
    restarts = Restarts()
    assert [restarts.pause_after(1.0) for _ in range(7)] == [*PAUSES, None, None]


def test_a_worker_process_that_ran_long_enough_resets_its_restart_pauses():
    restarts = Restarts()
    for _ in PAUSES:
        restarts.pause_after(1.0)
    assert restarts.pause_after(STEADY) == 0.0
    assert restarts.pause_after(1.0) == PAUSES[1]


def test_a_worker_process_that_waits_for_a_missing_store_or_database_is_restarted_for_ever():
    restarts = Restarts()
    assert {restarts.pause_while_away() for _ in range(100)} == {PAUSES[-1]}
    assert restarts.pause_after(1.0) == 0.0


def test_spawning_a_worker_process_is_retried_for_ever_with_bounded_pauses():
    restarts = Restarts()
    assert [*islice(restarts.pauses_between_tries(), 8)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert next(restarts.pauses_between_tries()) == 0.5
    assert restarts.pause_after(1.0) == 0.0
