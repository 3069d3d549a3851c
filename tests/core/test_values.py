"""Values of the core are frozen, equal by content, and copied with every field."""

import pytest
from hypothesis import given
from tests.core.test_record import presences, sessions

from herenow.core.model import Mode, Presence
from herenow.core.values import replace


@given(presences)
def test_replace_changes_only_the_named_fields_of_a_presence(presence):
    assert replace(presence) == presence
    new = replace(presence, version=7, mode=Mode.BUSY)
    assert (new.version, new.mode) == (7, Mode.BUSY)
    assert replace(new, version=presence.version, mode=presence.mode) == presence


@given(sessions)
def test_replace_changes_only_the_named_fields_of_a_session(session):
    new = replace(session, lost_at=7)
    assert new.lost_at == 7
    assert replace(new, lost_at=session.lost_at) == session


def test_replace_returns_an_immutable_copy_and_leaves_the_old_presence_unchanged():
    old = Presence(version=1)
    new = replace(old, version=2)
    assert (old.version, new.version, type(new)) == (1, 2, Presence)
    with pytest.raises(AttributeError):
        new.version = 3  # type: ignore[misc]


def test_replace_refuses_a_field_name_that_a_presence_does_not_have():
    with pytest.raises(TypeError):
        replace(Presence(), verison=1)
