"""An id is accepted unchanged or refused with a sentence; it is never corrected."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.errors import ProtocolError
from herenow.wire.ids import MAX_BYTES, are_plain, parse_id


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ana", "ana"),
        ("01", "01"),
        ("a/b?c#d%2F", "a/b?c#d%2F"),
        ("user:42@example", "user:42@example"),
        ("žofie", "žofie"),
        ("日本", "日本"),
        ("👩‍💻", "👩‍💻"),  # a zero-width joiner is part of the character
        ("a\u200bb", "a\u200bb"),  # format characters are neither control characters nor whitespace
        ("x" * MAX_BYTES, "x" * MAX_BYTES),
        ("é" * (MAX_BYTES // 2), "é" * (MAX_BYTES // 2)),
        (0, "0"),
        (456, "456"),
        (-1, "-1"),
        (10**127, "1" + "0" * 127),
    ],
)
def test_a_string_id_stays_as_it_is_and_an_integer_id_becomes_its_decimal_string(value, text):
    assert parse_id(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "a b",
        " ana",
        "ana\n",
        "a,b",
        ",",
        "\x00",
        "a\x1fb",
        "\x7f",
        "\x85",
        "a\tb",
        "a\u00a0b",
        "a\u1680b",
        "a\u2003b",
        "a\u2028b",
        "a\u2029b",
        "a\u202fb",
        "a\u3000b",
        "\ud800",
        "a\udfffb",
        "e\u0301",  # é in two code points: not NFC
        "\u212b",  # the Ångström sign: NFC is Å
        "x" * (MAX_BYTES + 1),
        "é" * (MAX_BYTES // 2) + "x",
        "x" * 100_000,
        10**128,
        -(10**127),
    ],
)
def test_an_id_with_forbidden_characters_or_length_is_refused(value):
    with pytest.raises(ProtocolError) as caught:
        parse_id(value)
    assert caught.value.code == "invalid_id"


@pytest.mark.parametrize("value", [True, False, None, 1.0, 1.5, [], ["ana"], {}, b"ana"])
def test_only_strings_and_integers_are_accepted_as_ids(value):
    with pytest.raises(ProtocolError, match="invalid_id"):
        parse_id(value)


def test_a_huge_integer_id_is_refused_without_converting_it():
    with pytest.raises(ProtocolError, match="invalid_id"):
        parse_id(10**100_000)


def test_an_id_with_a_leading_zero_is_a_different_user():
    assert parse_id("01") != parse_id(1)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=140))
def test_an_accepted_id_is_valid_and_unchanged(text):
    try:
        accepted = parse_id(text)
    except ProtocolError:
        return
    assert accepted == text
    assert 1 <= len(accepted.encode()) <= MAX_BYTES
    assert unicodedata.is_normalized("NFC", accepted)
    assert "," not in accepted
    assert not any(character.isspace() for character in accepted)


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1))
def test_every_valid_text_within_the_length_limit_is_accepted_as_an_id(text):
    text = unicodedata.normalize("NFC", text.replace(",", ""))[:30]
    if text and unicodedata.is_normalized("NFC", text):
        assert parse_id(text) == text


@pytest.mark.parametrize("ids", [["a"], ["a", "b"], ["a"] * 1000, ["!", "~", "-", "+"], ["x" * 128, "7"]])
def test_the_fast_check_of_a_list_of_ids_accepts_printable_ascii_ids(ids):
    assert are_plain(ids)
    assert [parse_id(each) for each in ids] == ids


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [""],
        ["a", ""],
        ["", "a"],
        ["a,b"],
        ["a", "b,c"],
        [","],
        ["a", 7],
        [None],
        ["a b"],
        ["x" * 129],
        ["ä"],
        ["a\n"],
    ],
)
def test_the_fast_check_of_a_list_of_ids_rejects_any_other_or_invalid_id(ids):
    assert not are_plain(ids)
