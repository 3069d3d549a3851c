"""Random histories for hypothesis: `@given(histories())`."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from herenow_testing.twins.hiding import Invisible
from herenow_testing.twins.history import (
    DEVICES,
    PAUSES,
    Act,
    Beat,
    Choose,
    Connect,
    Drop,
    FriendBlocks,
    History,
    Rest,
    SignOut,
    Step,
    Type,
    Write,
)

_device = st.sampled_from(DEVICES)
_pause = st.sampled_from(PAUSES)
_soon = st.sampled_from([None, 9, 31, 100])
_FAR = 100_000
"""Seconds: longer than any history, so that the hiding does not end by itself."""


def histories(shared: int = 7, hidden: int = 7, modes: Sequence[str] = Invisible.modes) -> st.SearchStrategy[History]:
    """Hypothesis strategy for histories of a user: at most `shared` steps before the user hides, and `hidden` steps
    after it. `modes`: the modes that the user may set while hidden."""
    open_ = st.builds(Choose, st.sampled_from(["auto", "busy", "away"]), _soon)
    hiding = st.builds(Choose, st.sampled_from(modes), st.sampled_from([None, _FAR]))
    return st.builds(History, _days(_step(open_), shared), _days(_step(hiding), hidden))


def _days(step: st.SearchStrategy[Step], most: int) -> st.SearchStrategy[tuple[tuple[Step, int], ...]]:
    return st.lists(st.tuples(step, _pause), max_size=most).map(tuple)


def _step(modes: st.SearchStrategy[Choose]) -> st.SearchStrategy[Step]:
    return st.one_of(
        st.builds(Connect, _device),
        st.builds(Connect, _device),  # twice as likely: most steps need a connection
        st.builds(Act, _device),
        st.builds(Rest, _device),
        st.builds(Drop, _device, st.booleans()),
        st.builds(SignOut, _device),
        modes,
        st.builds(Write, st.sampled_from([None, "here", "there"]), _soon),
        st.builds(Type, st.booleans(), _device),
        st.builds(Beat, st.sampled_from([None, "active", "idle"])),
        st.just(FriendBlocks()),
    )
