"""Codes are public: every code the source sends to a peer is in the one table."""

import ast
from pathlib import Path

import pytest

import herenow
from herenow.wire.codes import CLOSES, CODES, DENIALS, MALFORMED, Close, Where

SOURCE = Path(herenow.__file__).parent
SPEAKERS = {"ProtocolError": 0, "error_frame": 0, "denied_frame": 1}
"""Callables that take a code, and the position of that argument."""


def codes_said(path):
    """(line, code) of every literal code in a file; both codes of `x if … else y`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            place = SPEAKERS.get(name)
            arguments = [] if place is None else node.args[place : place + 1]
            arguments += [k.value for k in node.keywords if place is not None and k.arg in ("code", "reason")]
            for argument in arguments:
                for leaf in ast.walk(argument):
                    if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                        yield node.lineno, leaf.value


def test_every_error_code_used_in_the_source_is_in_the_public_table_of_codes():
    said = [(path, line, code) for path in sorted(SOURCE.rglob("*.py")) for line, code in codes_said(path)]
    assert len(said) > 20, "the scan has gone blind"
    unknown = [f"{path.relative_to(SOURCE)}:{line} {code}" for path, line, code in said if code not in CODES]
    assert not unknown


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_every_error_code_has_a_lower_case_name_a_sentence_and_an_http_error_status(code):
    assert code.name.replace("_", "").isalpha()
    assert code.name.islower()
    assert code.meaning[0].isupper()
    assert code.meaning.endswith(".")
    assert 400 <= code.http <= 599
    assert code.where


def test_the_public_table_of_error_codes_has_no_duplicates():
    rows = ast.parse((SOURCE / "wire" / "codes.py").read_text())
    names = [
        node.args[0].value
        for node in ast.walk(rows)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Code"
        if isinstance(node.args[0], ast.Constant)
    ]
    assert len(names) == len(set(names)) == len(CODES)


def test_the_error_codes_that_deny_a_subscription_are_the_documented_ones():
    assert {"not_mutual_followers", "too_many_subscriptions", "invalid_user_id"} == DENIALS


def test_the_error_codes_of_malformed_frames_are_websocket_codes():
    assert {"bad_json", "unknown_type", "bad_shape", "binary_frame"} == MALFORMED
    assert all(Where.WEBSOCKET in CODES[name].where for name in MALFORMED)


def test_only_error_codes_of_server_errors_and_rate_limits_are_retryable():
    assert {code.http for code in CODES.values() if code.retry} == {429, 500, 503}


def test_the_websocket_close_codes_are_the_documented_ones():
    assert set(CLOSES) == {1000, 1001, 1002, 1007, 1009, 1012, 1013, 4400, 4401, 4403, 4408, 4409, 4429}
    assert set(CLOSES) == set(Close)
    assert {int(row.code) for row in CLOSES.values() if not row.retry} == {1000, 4400, 4401, 4403, 4409}
    assert all(row.meaning.endswith(".") for row in CLOSES.values())
