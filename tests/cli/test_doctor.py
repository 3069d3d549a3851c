"""`herenow doctor` says what to fix, and changes nothing."""

import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.gateway.issuer import jwks, public_jwk

from herenow.cli.doctor import EXPECTED_FILES, LEAST_FILES, Weight, clock, files

NOW = 1_790_000_000.0


@pytest.fixture(autouse=True)
def enough_files(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (EXPECTED_FILES, EXPECTED_FILES))


def test_a_fresh_machine_is_fine_and_stays_untouched(herenow):
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "problem" not in result.stdout
    assert list(Path().iterdir()) == []


def test_a_ledger_in_use_is_fine(herenow):
    herenow("migrate")
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "herenow.db opens and can be written." in result.stdout
    assert "Up to date" in result.stdout


def test_a_ledger_of_a_newer_version_is_a_problem(herenow):
    herenow("migrate")
    with closing(sqlite3.connect("herenow.db")) as db:
        db.execute("update herenow_schema set version_num = '9999'")
        db.commit()
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "run the version that wrote it" in " ".join(result.stdout.split())


def test_an_empty_ledger_file_is_an_advice(herenow):
    Path("herenow.db").touch()
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "herenow migrate brings it up to date" in result.stdout


@pytest.mark.parametrize(
    "spoil", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"no database" * 99)]
)
def test_a_ledger_that_is_no_database_is_a_problem(herenow, spoil):
    spoil(Path("herenow.db"))
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "herenow.db cannot be used" in result.stdout


def test_a_missing_folder_is_a_problem(herenow):
    result = herenow("doctor", "--ledger", "sqlite:///no/herenow.db")
    assert result.exit_code == 1
    assert "cannot be created" in result.stdout


def test_a_ledger_in_memory_is_an_advice(herenow):
    result = herenow("doctor", "--ledger", "sqlite://")
    assert result.exit_code == 0
    assert "end with the process" in result.stdout


def test_a_secret_that_others_may_read_is_a_problem(herenow):
    herenow("token", "ana")
    Path("herenow.secret").chmod(0o644)
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "chmod 600" in result.stdout


def test_a_wrong_setting_is_exit_code_2(herenow):
    assert herenow("doctor", "--dead-after", "1").exit_code == 2


def test_an_unknown_variable_is_an_advice(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_PROT", "1")
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "HERENOW_PROT is not a setting" in result.stdout


@pytest.mark.parametrize(
    ("limit", "weight"),
    [
        (256, Weight.PROBLEM),
        (LEAST_FILES - 1, Weight.PROBLEM),
        (LEAST_FILES, Weight.ADVICE),
        (EXPECTED_FILES - 1, Weight.ADVICE),
        (EXPECTED_FILES, Weight.FINE),
        (resource.RLIM_INFINITY, Weight.FINE),
    ],
)
def test_every_connection_needs_a_file(limit, weight):
    (finding,) = files(limit)
    assert finding.weight is weight


def test_a_clock_that_lost_its_battery_is_a_problem():
    (finding,) = clock(None, 3600.0)
    assert finding.weight is Weight.PROBLEM


def test_a_clock_behind_the_ledger_is_a_problem(tmp_path):
    path = tmp_path / "herenow.db"
    path.touch()
    os.utime(path, (NOW, NOW))
    assert [finding.weight for finding in clock(path, NOW - 3600)] == [Weight.PROBLEM]
    assert [finding.weight for finding in clock(path, NOW)] == [Weight.FINE]


def test_the_keys_of_an_issuer_are_looked_at(herenow):
    Path("jwks.json").write_bytes(jwks(public_jwk("ES256"), public_jwk("EdDSA"), {"kty": "oct", "k": "eA"}))
    result = herenow("doctor", "--jwks-file", "jwks.json")
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "jwks.json has keys: 1 for ES256, 1 for EdDSA." in said
    assert "Not used: key 3 is of a type that is not used here" in said
    assert "set jwt_issuer and jwt_audience" in said
    assert "None, and none is needed" in said
    named = herenow("doctor", "--jwks-file", "jwks.json", "--jwt-issuer", "i", "--jwt-audience", "a")
    assert "made for others" not in " ".join(named.stdout.split())


def test_keys_that_cannot_be_had_are_a_problem(herenow):
    Path("jwks.json").write_text("{}")
    for where in (["--jwks-file", "jwks.json"], ["--jwks-url", "http://user:hunter2@127.0.0.1:1/jwks"]):
        result = herenow("doctor", *where)
        assert result.exit_code == 1
        assert "cannot be used: it" in " ".join(result.stdout.split())
        assert "hunter2" not in result.stdout
