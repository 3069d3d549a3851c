"""`herenow serve` passes the settings to the composition root and returns its exit code."""

import sys
from types import ModuleType

import pytest

from herenow.settings import Settings


@pytest.fixture
def started(monkeypatch):
    """Replaces the composition root, which has its own tests; returns its calls."""
    calls = []
    app = ModuleType("herenow.app")

    def serve(settings, *, demo):
        calls.append((settings, demo))
        return 7

    vars(app)["serve"] = serve
    monkeypatch.setitem(sys.modules, "herenow.app", app)
    return calls


def test_flags_of_herenow_serve_become_settings(herenow, started):
    result = herenow("serve", "--port", "0", "--beat-every", "2", "--dead-after=6", "--demo")
    ((settings, demo),) = started
    assert result.exit_code == 7
    assert (settings.port, settings.beat_every, settings.dead_after, demo) == (0, 2.0, 6.0, True)
    assert settings.source_of("port") == "--port"


def test_herenow_serve_reads_the_settings_file_given_by_config(herenow, started, tmp_path):
    (tmp_path / "other.toml").write_text("port = 5")
    herenow("serve", "--config", "other.toml")
    ((settings, demo),) = started
    assert (settings.port, demo) == (5, False)


def test_herenow_serve_with_a_wrong_setting_starts_no_server(herenow, started):
    result = herenow("serve", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "needs a configured secret" in result.stderr
    assert started == []


def test_the_help_of_herenow_serve_lists_every_setting_as_flag_and_environment_variable(herenow):
    shown = herenow("serve", "--help").stdout
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')} " in shown
        assert f"HERENOW_{name.upper()}" in shown


def test_herenow_serve_refuses_several_workers_on_the_memory_store_with_a_remedy(herenow, started):
    result = herenow("serve", "--workers", "4")
    assert result.exit_code == 2
    assert "several workers need Redis (engine = redis://…)" in result.stderr
    assert started == []


def test_herenow_serve_refuses_demo_with_several_workers(herenow, started):
    result = herenow("serve", "--workers", "2", "--engine", "redis://127.0.0.1:1", "--demo")
    assert result.exit_code == 1
    assert "--demo is for one process" in result.stderr
    assert started == []
