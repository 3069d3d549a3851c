"""The text that `herenow top` makes of answers, without a server; which node it asks, and with which token."""

import json

import msgspec
import pytest
from tests.processes import SECRET

from herenow.api.ops.stats import Stats
from herenow.cli.node_client import NodeAnswer, checked_url, own_url, tokens
from herenow.cli.top.top_view import Line, fitted, lines, printed, problems
from herenow.settings import Settings


def stats(**given):
    plain = json.loads(PLAIN) | given
    return msgspec.convert(plain, Stats)


PLAIN = json.dumps(
    {
        "version": "1",
        "now": 1,
        "workers": 1,
        "ready": True,
        "draining": False,
        "node_lease": 10,
        "connections": 5,
        "streams": 0,
        "sessions": 5,
        "users": {"online": 3, "busy": 1, "away": 1},
        "beats": {"accepted": 1, "dropped": 0},
        "changes": 1,
        "deliveries": 1,
        "frames": 1,
        "conflicts": 0,
        "engine_errors": 0,
        "ledger_errors": 0,
        "ledger_backlog": 0,
        "stale_views": 0,
        "per_second": {},
        "delivery": {},
        "refusals": {"not_found": 3},
        "closes": {"4401": 2},
        "processes": [],
        "members": [],
        "targets": [{"target": "ab12", "viewers": 7, "deliveries": 70}],
        "degraded": [],
        "history": [],
    }
)
OOM = {"what": "engine", "detail": "The live store is full.", "fix": "Raise its maxmemory."}


def said(*asked, width=200):
    return printed(lines(list(asked), width), colours=False)


def test_herenow_top_shows_the_same_problem_of_several_nodes_in_one_line_that_names_them():
    one, two = (NodeAnswer(url, stats(degraded=[OOM])) for url in ("http://a:1", "http://b:2"))
    three = NodeAnswer("http://c:3", stats())
    [problem] = problems([one, two, three])
    assert problem.where == ("http://a:1", "http://b:2")
    assert said(one, two, three)[:2] == ["✗ The live store is full. (a:1, b:2)", "  → Raise its maxmemory."]


def test_herenow_top_sums_connections_over_nodes_but_not_users():
    text = "\n".join(said(NodeAnswer("http://a:1", stats()), NodeAnswer("http://b:2", stats())))
    assert "3 online · 1 busy · 1 away" in text
    assert "10 connections" in text
    assert "not_found 6" in text
    assert "ab12  140 deliveries to 14 viewers" in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"draining": True, "ready": False}, "draining"),
        ({"ready": False}, "not ready"),
        ({"delivery": {"p50": 0.1, "p99": 2.5}}, "Changes take 2.5 s"),
    ],
)
def test_herenow_top_also_reports_problems_that_a_node_does_not_list_itself(given, sentence):
    [problem] = problems([NodeAnswer("http://a:1", stats(**given))])
    assert sentence in problem.sentence


def test_herenow_top_shows_a_lost_lease_and_a_node_that_stopped_renewing_its_lease():
    process = {
        "worker": 1,
        "restarts": 0,
        "epoch": "e1",
        "ready": True,
        "draining": False,
        "lease_held": False,
        "lease_renewed_ago": 12.0,
        "connections": 5,
        "undecided": 0,
        "stale_shards": 16,
        "log_behind": 0,
        "log_heard_ago": 9.0,
        "loop_late": 0.0,
        "gives_up": 0,
    }
    members = [
        {"epoch": "e1", "here": True, "state": "overdue", "still_for": 12.0},
        {"epoch": "e2", "here": False, "state": "overdue", "still_for": 8.0},
    ]
    text = "\n".join(said(NodeAnswer("http://a:1", stats(processes=[process], members=members))))
    assert "LOST" in text
    assert "none for 9 s" in text
    assert "e2  overdue, lease renewed 8 s ago (not in the table above)" in text


def test_herenow_top_wraps_long_problem_lines_and_cuts_long_table_lines():
    sentence = "✗ " + "word " * 30
    shown = fitted([Line(sentence.strip()), Line("x" * 100)], 30, 99)
    assert all(len(line.text) <= 30 for line in shown)
    assert " ".join(line.text.strip() for line in shown[:-1]) == sentence.strip()
    assert shown[-1].text == "x" * 30


def test_herenow_top_can_wrap_a_word_longer_than_the_terminal():
    assert len(fitted([Line("✗ " + "y" * 500)], 5, 99)) < 60


# --- Address and token


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://a.example/", "https://a.example"),
        ("https://a.example/presence/dashboard", "https://a.example/presence"),
        ("http://[::1]:8000/api/v1/stats", "http://[::1]:8000"),
    ],
)
def test_herenow_top_reduces_a_given_address_to_the_base_url_of_the_node(text, url):
    assert checked_url(text) == url


def test_the_default_url_of_herenow_top_is_derived_from_the_settings():
    assert own_url(Settings(host="0.0.0.0", port=9, secret=SECRET)) == "http://127.0.0.1:9"
    assert own_url(Settings(host="::1", port=9)) == "http://[::1]:9"


def test_herenow_top_uses_the_given_token_or_mints_one_or_needs_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tokens(Settings(), "mine")("http://127.0.0.1") == "mine"
    assert tokens(Settings(secret=SECRET), None)("http://localhost:1") is None
    made = tokens(Settings(secret=SECRET), None)("http://10.0.0.1:1")
    assert made is not None
    assert tokens(Settings(), None)("http://10.0.0.1:1") is None  # no secret is generated for it
    assert list(tmp_path.iterdir()) == []


def test_herenow_top_shows_large_numbers_with_thousands_separators():
    assert "1\u202f234\u202f567 connections" in "\n".join(said(NodeAnswer("http://a:1", stats(connections=1_234_567))))
