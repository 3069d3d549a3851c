"""How often a worker may die."""

from itertools import islice

from herenow.workers.restarts import PAUSES, STEADY, Restarts


def test_an_accident_is_followed_by_a_start_at_once_however_often_it_happens():
    restarts = Restarts()
    assert [restarts.pause_after(STEADY) for _ in range(50)] == [0.0] * 50


def test_deaths_at_once_are_followed_by_longer_and_longer_pauses_and_then_by_none():
    restarts = Restarts()
    assert [restarts.pause_after(1.0) for _ in range(7)] == [*PAUSES, None, None]


def test_a_life_of_some_length_forgives_what_was_before():
    restarts = Restarts()
    for _ in PAUSES:
        restarts.pause_after(1.0)
    assert restarts.pause_after(STEADY) == 0.0
    assert restarts.pause_after(1.0) == PAUSES[1]


def test_who_waits_for_a_service_is_never_given_up():
    restarts = Restarts()
    assert {restarts.pause_while_away() for _ in range(100)} == {PAUSES[-1]}
    assert restarts.pause_after(1.0) == 0.0


def test_who_could_not_be_started_is_tried_again_for_ever_after_pauses_that_grow_to_a_bound():
    restarts = Restarts()
    assert [*islice(restarts.pauses_between_tries(), 8)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert next(restarts.pauses_between_tries()) == 0.5
    assert restarts.pause_after(1.0) == 0.0
