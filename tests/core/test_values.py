"""The fast `replace` is `dataclasses.replace`, only faster."""

import dataclasses

import pytest
from hypothesis import given
from tests.core.test_record import presences, sessions

from herenow.core.model import Mode, Presence, Session
from herenow.core.values import replace


@given(presences)
def test_it_makes_the_same_presence(presence):
    assert replace(presence) == presence
    assert replace(presence, version=7, mode=Mode.BUSY) == dataclasses.replace(
        presence, version=7, mode=Mode.BUSY
    )


@given(sessions)
def test_it_makes_the_same_session(session):
    assert replace(session, lost_at=7) == dataclasses.replace(session, lost_at=7)


def test_the_old_value_stays_and_the_new_one_is_frozen_too():
    old = Presence(version=1)
    new = replace(old, version=2)
    assert (old.version, new.version, type(new)) == (1, 2, Presence)
    with pytest.raises(dataclasses.FrozenInstanceError):
        new.version = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Presence, Session])
def test_it_knows_every_field(kind):
    assert list(kind.__slots__) == [f.name for f in dataclasses.fields(kind)]


def test_a_field_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        replace(Presence(), verison=1)  # type: ignore[call-arg]
