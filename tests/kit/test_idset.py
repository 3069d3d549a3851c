"""A sorted tuple of ids behaves like a set."""

from hypothesis import given
from hypothesis import strategies as st

from herenow.kit.idset import MANY, NO_IDS, among, having, holds, lacking

ids = st.frozensets(st.text(alphabet="abz\u00fc\U0001f600", max_size=3), max_size=3 * MANY)


@given(ids, ids, ids)
def test_a_sorted_tuple_of_ids_behaves_like_a_set(some, more, others):
    kept = having(having(NO_IDS, some), more - some)
    assert kept == tuple(sorted(some | more))
    asked = [*others, *some]
    assert [holds(kept, each) for each in asked] == [each in some | more for each in asked]
    assert [each in among(kept, asked) for each in asked] == [each in some | more for each in asked]
    assert lacking(kept, others) == lacking(kept, [*others] * 2) == tuple(sorted((some | more) - others))
