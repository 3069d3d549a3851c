"""`herenow config` shows the values in force and their sources."""

from herenow.settings import Settings

SECRET = "correct horse battery staple, twice over"


def test_herenow_config_lists_every_setting(herenow):
    shown = herenow("config").stdout
    lines = {line.split()[0] for line in shown.splitlines() if line.strip()}
    assert set(Settings.model_fields) <= lines


def test_herenow_config_shows_value_default_unit_and_source_of_a_setting(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_GRACE", "2.5")
    (row,) = [line.split() for line in herenow("config").stdout.splitlines() if line.startswith("grace ")]
    assert row[:5] == ["grace", "2.5", "30", "s", "HERENOW_GRACE"]


def test_herenow_config_shows_a_secret_only_as_set(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    shown = herenow("config").stdout
    assert SECRET not in shown
    assert "(set)" in shown


def test_herenow_config_with_a_wrong_value_prints_one_error_line_and_exits_with_2(herenow):
    result = herenow("config", "--port", "none")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "Error: port = 'none' (--port) is not allowed: it must be a port from 1 to 65535, or 0 for any free one."
    ]


def test_herenow_config_warns_on_stderr_of_an_unknown_environment_variable(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_PROT", "1")
    result = herenow("config")
    assert result.exit_code == 0
    assert "HERENOW_PROT is not a setting" in result.stderr
