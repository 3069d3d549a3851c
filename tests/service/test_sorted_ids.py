"""Ids in little room are a set of ids."""

from hypothesis import given
from hypothesis import strategies as st

from herenow.service.sorted_ids import NO_IDS, having, holds, lacking

ids = st.frozensets(st.text(max_size=3))


@given(ids, ids, st.text(max_size=3))
def test_what_was_put_in_is_there_and_what_was_taken_out_is_not(some, more, one):
    kept = having(having(NO_IDS, some), more - some)
    assert kept == tuple(sorted(some | more))
    assert all(holds(kept, each) is (each in some | more) for each in {one, *some, *more})
    assert lacking(kept, one) == tuple(sorted((some | more) - {one}))
    if not holds(kept, one):
        assert lacking(kept, one) is kept  # who asks may tell by this
