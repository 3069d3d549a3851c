"""A bounded cache keeps the last written entries and never exceeds its size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.kit.lru import PORTION, ExpiringLru, Lru


def test_an_entry_written_to_a_cache_is_read_back():
    cache = Lru(10)
    cache.put("a", 1)
    cache.put("b", 2)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, 2, None)
    assert "a" in cache
    assert len(cache) == 2


def test_a_full_cache_evicts_its_oldest_entries():
    cache = Lru(3)
    for number in range(5):
        cache.put(number, number)
    assert list(cache) == [2, 3, 4]


def test_a_write_makes_a_cache_entry_the_newest():
    cache = Lru(3)
    for key in "abca":
        cache.put(key, key)
    cache.put("d", "d")
    assert list(cache) == ["c", "a", "d"]


def test_the_call_use_makes_a_cache_entry_the_newest_and_the_call_get_does_not():
    cache = Lru(3)
    for key in "abc":
        cache.put(key, key)
    assert cache.get("a") == "a"
    assert cache.use("b") == "b"
    assert cache.use("x") is None
    cache.put("d", "d")
    assert list(cache) == ["c", "b", "d"]


def test_put_all_does_not_exceed_the_size_of_a_cache():
    cache = Lru(3)
    cache.put_all({1: "a", 2: "b"})
    cache.put_all({1: "c", 3: "d", 4: "e", 5: "f"})
    assert cache == {3: "d", 4: "e", 5: "f"}


def test_a_large_cache_evicts_a_portion_at_a_time():
    size = 10 * PORTION
    cache = Lru(size)
    for number in range(size + 1):
        cache.put(number, number)
    assert len(cache) == size - size // PORTION
    assert min(cache) == 1 + size // PORTION


@given(st.integers(1, 300), st.lists(st.tuples(st.sampled_from(["put", "use", "pop"]), st.integers(0, 500))))
def test_a_cache_never_exceeds_its_size_and_keeps_the_last_write(size, steps):
    cache, last = Lru(size), None
    for step, key in steps:
        if step == "put":
            cache.put(key, -key)
            last = key
        elif step == "use":
            assert cache.use(key) in (None, -key)
        else:
            cache.pop(key, None)
            last = None if last == key else last
        assert len(cache) <= size
        assert last is None or cache.get(last) == -last


@pytest.fixture
def expiring():
    cache = ExpiringLru(3)
    for number, key in enumerate("abc"):
        cache.put(key, key.upper(), until=100 + number)
    return cache


def test_an_expiring_cache_entry_is_readable_until_its_end(expiring):
    assert expiring.get("a", 99) == "A"
    assert expiring.get("a", 100) is None
    assert expiring.peek("a") == "A"
    assert expiring.peek("x") is None
    assert expiring.get("b", 100) == "B"
    assert expiring.get("x", 0) is None


def test_an_expiring_cache_is_bounded(expiring):
    expiring.put("a", "again", until=200)
    expiring.put("d", "D", until=200)
    assert list(expiring.items()) == [("c", "C"), ("a", "again"), ("d", "D")]


def test_expire_removes_cache_entries_whose_end_has_passed(expiring):
    expiring.expire(100)
    assert list(expiring.items()) == [("b", "B"), ("c", "C")]
    expiring.pop("c")
    expiring.pop("c")
    expiring.expire(1_000)
    assert len(expiring) == 0


def test_an_ended_cache_entry_behind_a_lasting_one_stays_in_memory_but_is_not_returned():
    cache = ExpiringLru(3)
    cache.put("a", 1, until=500)
    cache.put("b", 2, until=100)
    cache.expire(200)
    assert len(cache) == 2
    assert cache.get("b", 200) is None
    cache.clear()
    assert len(cache) == 0
