"""A line of an import is a row or an error with its line number."""

import pytest

from herenow.ports import RelationRow
from herenow.wire.codes import CODES
from herenow.wire.relation_rows import BadRow, parse_csv, parse_ndjson


def test_csv_lines_of_an_import_become_relation_rows():
    lines = b"follow,ana,bob\ncontact,ana,eva,1790000000000\ncontact,ana,eva,\nroom,r1,ana\n"
    assert list(parse_csv(lines.splitlines(keepends=True))) == [
        RelationRow("follow", "ana", "bob"),
        RelationRow("contact", "ana", "eva", 1_790_000_000_000),
        RelationRow("contact", "ana", "eva"),
        RelationRow("room", "r1", "ana"),
    ]


def test_ndjson_lines_of_an_import_become_relation_rows():
    lines = [
        b'{"kind":"follow","a":1,"b":"2"}\n',
        b'{"kind":"contact","a":"ana","b":"bob","until":"2026-11-01T00:00:00+01:00"}',
        b'{"kind":"contact","a":"ana","b":"bob","until":null}',
        b'{"kind":"room","a":"same","b":"same"}',
    ]
    assert list(parse_ndjson(lines)) == [
        RelationRow("follow", "1", "2"),
        RelationRow("contact", "ana", "bob", 1_793_487_600_000),
        RelationRow("contact", "ana", "bob"),
        RelationRow("room", "same", "same"),
    ]


@pytest.mark.parametrize("header", [b"kind,a,b", b"kind,a,b,until", b"\xef\xbb\xbfkind,a,b"])
def test_headings_byte_order_marks_and_empty_lines_of_a_csv_import_are_skipped(header):
    lines = [header + b"\r\n", b"\r\n", b"   \n", b"follow,ana,bob\r\n"]
    assert list(parse_csv(lines)) == [RelationRow("follow", "ana", "bob")]


def test_an_id_in_a_csv_import_may_contain_quotes():
    assert list(parse_csv([b'follow,"a""b",c'])) == [RelationRow("follow", 'a"b', "c")]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"likes,ana,bob", "invalid_relation"),
        (b"follow,ana", "invalid_relation"),
        (b"follow,ana,bob,1790000000000,5", "invalid_relation"),
        (b"follow,ana,bob,1790000000000", "invalid_relation"),
        (b"follow,ana,ana", "invalid_relation"),
        (b'follow,"ana,bob', "invalid_relation"),
        (b"follow,\xff,bob", "invalid_relation"),
        (b"follow,,bob", "invalid_user_id"),
        (b"follow, ana,bob", "invalid_user_id"),
        (b"follow,ana,e\xcc\x81", "invalid_user_id"),
        (b"room,a b,bob", "invalid_id"),
        (b"room,r1,a b", "invalid_user_id"),
        (b"contact,ana,bob,tomorrow", "invalid_instant"),
        (b"contact,ana,bob,2026-11-01T00:00:00", "invalid_instant"),
    ],
)
def test_a_bad_line_of_a_csv_import_does_not_affect_the_next_line(line, code):
    bad, good = list(parse_csv([line, b"follow,ana,bob"]))
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.code) == (1, code)
    assert good == RelationRow("follow", "ana", "bob")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"follow,ana,bob", "invalid_relation"),
        (b"{", "invalid_relation"),
        (b"[" * 100_000, "invalid_relation"),
        (b"[]", "invalid_relation"),
        (b"{}", "invalid_relation"),
        (b'{"kind":["follow"],"a":"x","b":"y"}', "invalid_relation"),
        (b'{"kind":"follow","a":"x"}', "invalid_relation"),
        (b'{"kind":"follow","a":"x","b":"y","untill":1}', "invalid_relation"),
        (b'{"kind":"follow","a":true,"b":"y"}', "invalid_user_id"),
        (b'{"kind":"follow","a":null,"b":"y"}', "invalid_user_id"),
        (b'{"kind":"contact","a":"x","b":"y","until":true}', "invalid_instant"),
        (b'{"kind":"contact","a":"x","b":"y","until":1.5}', "invalid_instant"),
    ],
)
def test_a_bad_json_line_of_an_import_becomes_an_error_with_its_line_number(line, code):
    _good, bad = list(parse_ndjson([b'{"kind":"follow","a":"x","b":"y"}', line]))
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.code) == (2, code)
    assert bad.message.endswith(".")


@pytest.mark.parametrize("code", ["invalid_relation", "invalid_id", "invalid_user_id", "invalid_instant"])
def test_the_error_codes_of_bad_import_lines_are_in_the_public_table_of_codes(code):
    assert code in CODES


@pytest.mark.parametrize(
    "line",
    [b'{"kind":"follow","a":"ana","a":"eva","b":"bob"}', b'{"kind":"follow","a":"ana","\\u0061":"eva","b":"bob"}'],
)
def test_an_import_line_with_a_repeated_json_key_is_refused(line):
    [row] = parse_ndjson([line])
    assert row == BadRow(1, "invalid_relation", "A key is repeated in the line.")
