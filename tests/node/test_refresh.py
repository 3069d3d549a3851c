"""Old facts are refreshed in time; facts that could not be refreshed expire at the age limit."""

import pytest

from herenow.node.access.refresh import LATEST, RefreshSchedule

LIMIT = 100.0


class Hands:
    def __init__(self):
        self.at = 1000.0

    def __call__(self):
        return self.at


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def ages(hands):
    return RefreshSchedule(LIMIT, hands)


def test_cached_relations_are_due_for_a_refresh_well_before_their_age_limit(ages, hands):
    ages.asked("ana", hands.at)
    hands.at += LIMIT * 0.5 - 0.1
    assert ages.turns() == ([], [])
    hands.at += LIMIT * 0.25 + 0.2
    assert ages.turns() == (["ana"], [])


def test_refreshes_of_cached_relations_are_spread_over_time(ages, hands):
    for n in range(100):
        ages.asked(str(n), hands.at)
    hands.at += LIMIT * 0.625
    assert 20 < len(ages.turns()[0]) < 80


def test_a_failed_refresh_of_cached_relations_is_repeated_until_their_age_limit(ages, hands):
    ages.asked("ana", hands.at)
    hands.at += LIMIT * LATEST
    tries = 0
    while True:
        old, over = ages.turns()
        tries += len(old)
        if over:
            break
        hands.at += 1.0
    assert over == ["ana"]
    assert hands.at == 1000.0 + LIMIT
    assert 4 <= tries <= 7
    hands.at += LIMIT
    assert ages.turns() == ([], [])


def test_a_refresh_resets_the_age_of_cached_relations(ages, hands):
    ages.asked("ana", hands.at)
    hands.at += LIMIT * 0.9
    ages.asked_anew("ana", hands.at)
    hands.at += LIMIT * 0.4
    assert ages.turns() == ([], [])
    hands.at += LIMIT * 0.6
    assert ages.turns() == ([], ["ana"])


def test_the_age_of_the_cached_relations_of_a_user_is_that_of_the_oldest_answer(ages, hands):
    ages.asked("ana", hands.at)
    hands.at += LIMIT * 0.9
    ages.asked("ana", hands.at)
    hands.at += LIMIT * 0.1
    assert ages.turns()[1] == ["ana"]


def test_without_an_age_limit_cached_relations_are_never_refreshed(hands):
    ages = RefreshSchedule(None, hands)
    ages.asked("ana", hands.at)
    hands.at += 1e9
    assert ages.turns() == ([], [])
