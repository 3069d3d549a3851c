"""What decisions are made of: frozen, equal by content, and copied with every field."""

import pytest
from hypothesis import given
from tests.core.test_record import presences, sessions

from herenow.core.model import Mode, Presence
from herenow.core.values import replace


@given(presences)
def test_a_new_presence_differs_in_what_was_said_and_in_nothing_else(presence):
    assert replace(presence) == presence
    new = replace(presence, version=7, mode=Mode.BUSY)
    assert (new.version, new.mode) == (7, Mode.BUSY)
    assert replace(new, version=presence.version, mode=presence.mode) == presence


@given(sessions)
def test_a_new_session_differs_in_what_was_said_and_in_nothing_else(session):
    new = replace(session, lost_at=7)
    assert new.lost_at == 7
    assert replace(new, lost_at=session.lost_at) == session


def test_the_old_value_stays_and_the_new_one_is_frozen_too():
    old = Presence(version=1)
    new = replace(old, version=2)
    assert (old.version, new.version, type(new)) == (1, 2, Presence)
    with pytest.raises(AttributeError):
        new.version = 3  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_an_error():
    with pytest.raises(TypeError):
        replace(Presence(), verison=1)
