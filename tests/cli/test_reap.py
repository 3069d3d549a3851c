"""`herenow reap` passes its shards, pause and batch size to the composition root; wrong flags give one error line."""

import sys
from types import ModuleType

import pytest

from herenow.node import Reaping

REDIS = ("--engine", "redis://127.0.0.1:1")


@pytest.fixture
def started(monkeypatch):
    """Replaces the composition root; returns its calls."""
    calls = []
    app = ModuleType("herenow.app")

    def reap(settings, reaping):
        calls.append((settings, reaping))
        return 7

    vars(app)["reap"] = reap
    monkeypatch.setitem(sys.modules, "herenow.app", app)
    return calls


@pytest.mark.parametrize(
    ("flags", "shards"),
    [
        ([], None),
        (["--all-shards"], None),
        (["--shards", "0-7"], frozenset(range(8))),
        (["--shards", "0, 3,8-11,3"], frozenset({0, 3, 8, 9, 10, 11})),
        (["--shard-id", "15"], frozenset({15})),
    ],
)
def test_herenow_reap_accepts_all_shards_a_list_of_shards_or_one_shard_id(herenow, started, flags, shards):
    result = herenow("reap", *REDIS, *flags)
    ((_, reaping),) = started
    assert result.exit_code == 7
    assert reaping == Reaping(shards, poll=1.0, batch=500, first=True)


def test_herenow_reap_accepts_a_poll_interval_and_a_batch_size(herenow, started, tmp_path):
    (tmp_path / "herenow.toml").write_text('shards = 4\nengine = "redis://127.0.0.1:2"\n')
    herenow("reap", "--poll-interval", "0.25", "--batch-size", "40", "--shards", "3")
    ((settings, reaping),) = started
    assert (reaping.poll, reaping.batch, settings.shards) == (0.25, 40, 4)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--shards", "0-16"], "--shards = '0-16' must be a list like 0-7 or 0,3,8-11, of shards from 0 to 15."),
        (["--shards", "7-0"], "of shards from 0 to 15."),
        (["--shards", ""], "must be a list like"),
        (["--shards", "1,"], "must be a list like"),
        (["--shards", "-1"], "must be a list like"),
        (["--shards", "²"], "must be a list like"),
        (["--shard-id", "16"], "--shard-id = '16' must be a shard from 0 to 15."),
        (["--shard-id", "-1"], "must be a shard from 0 to 15."),
        (["--shard-id", "one"], "must be a shard from 0 to 15."),
        (["--shard-id", "1", "--all-shards"], "give only one of them."),
        (["--shard-id", "1", "--shards", "2"], "give only one of them."),
        (["--poll-interval", "0"], "--poll-interval = '0' must be a number of seconds from 0.05 to 60."),
        (["--poll-interval", "nan"], "must be a number of seconds"),
        (["--poll-interval", "soon"], "must be a number of seconds"),
        (["--poll-interval", "1e9"], "must be a number of seconds"),
        (["--batch-size", "0"], "--batch-size = '0' must be a whole number from 1 to 10000."),
        (["--batch-size", "1.5"], "must be a whole number"),
        (["--batch-size", "10001"], "must be a whole number"),
        (["--engine", "memory://"], "herenow reap needs Redis."),
    ],
)
def test_herenow_reap_with_a_wrong_flag_prints_an_error_and_does_not_start(herenow, started, flags, sentence):
    result = herenow("reap", *REDIS, *flags)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert started == []


def test_herenow_serve_on_the_memory_store_refuses_reap_off(herenow, started):
    result = herenow("serve", "--reap", "off")
    assert result.exit_code == 2
    assert "no other process could handle its timeouts" in result.stderr
