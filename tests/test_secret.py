"""Without a configured secret, one is generated once and kept beside the ledger, readable by its owner only."""

import stat

import pytest

from herenow import secret as secrets_kept
from herenow.errors import ConfigurationError
from herenow.secret import resolve_secrets, secret_path
from herenow.settings import Settings

CONFIGURED = "correct horse battery staple, twice over"


def test_a_configured_secret_is_used_and_no_secret_file_is_written(tmp_path):
    settings = Settings(secret=CONFIGURED, ledger=f"sqlite:///{tmp_path}/herenow.db")
    assert resolve_secrets(settings) == (CONFIGURED,)
    assert list(tmp_path.iterdir()) == []


def test_a_generated_secret_stays_the_same_and_its_file_is_readable_by_the_owner_only(tmp_path):
    settings = Settings(ledger=f"sqlite:///{tmp_path}/herenow.db")
    first = resolve_secrets(settings)
    assert resolve_secrets(settings) == first
    assert [len(secret.encode()) >= 32 for secret in first] == [True]
    assert [path.name for path in tmp_path.iterdir()] == ["herenow.secret"]
    assert stat.S_IMODE((tmp_path / "herenow.secret").stat().st_mode) == 0o600


def test_a_secret_generated_for_a_database_in_memory_is_not_kept():
    settings = Settings(ledger="sqlite://")
    assert secret_path(settings) is None
    assert resolve_secrets(settings) != resolve_secrets(settings)


def test_a_secret_generated_for_a_postgresql_database_is_kept_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = Settings(ledger="postgresql://ana@db/presence")
    assert resolve_secrets(settings) == resolve_secrets(settings)
    assert [path.name for path in tmp_path.iterdir()] == ["herenow.secret"]


def test_two_processes_that_generate_a_secret_at_once_use_the_same_one(tmp_path, monkeypatch):
    settings = Settings(ledger=f"sqlite:///{tmp_path}/herenow.db")
    winner = "w" * 43
    drafted = secrets_kept._new_secret

    def the_other_is_faster():
        secrets_kept._write(winner, tmp_path / "herenow.secret")
        return drafted()

    monkeypatch.setattr(secrets_kept, "_new_secret", the_other_is_faster)
    assert resolve_secrets(settings) == (winner,)
    assert [path.name for path in tmp_path.iterdir()] == ["herenow.secret"]


def test_a_secret_file_readable_by_others_is_refused(tmp_path):
    settings = Settings(ledger=f"sqlite:///{tmp_path}/herenow.db")
    resolve_secrets(settings)
    (tmp_path / "herenow.secret").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        resolve_secrets(settings)


def test_a_secret_file_with_a_too_short_secret_is_refused_without_showing_it(tmp_path):
    path = tmp_path / "herenow.secret"
    path.write_text("hunter2")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="shorter than 32 bytes") as caught:
        resolve_secrets(Settings(ledger=f"sqlite:///{tmp_path}/herenow.db"))
    assert "hunter2" not in str(caught.value)


def test_a_secret_file_may_hold_several_secrets_one_per_line(tmp_path):
    path = tmp_path / "herenow.secret"
    path.write_text("a" * 32 + "\n\n" + "b" * 32 + "\n")
    path.chmod(0o600)
    settings = Settings(ledger=f"sqlite:///{tmp_path}/herenow.db")
    assert resolve_secrets(settings) == ("a" * 32, "b" * 32)
    path.write_text("\n".join(f"{number}" * 32 for number in range(9)))
    with pytest.raises(ConfigurationError, match="has 9 secrets; at most 8"):
        resolve_secrets(settings)


def test_generating_a_secret_in_a_missing_folder_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        resolve_secrets(Settings(ledger=f"sqlite:///{tmp_path}/no/herenow.db"))
