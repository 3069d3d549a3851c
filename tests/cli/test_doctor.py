"""`herenow doctor` reports what to fix, and changes nothing."""

import hashlib
import hmac
import json
import os
import resource
import socket
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.transport.issuer import jwks, public_jwk

from herenow.cli.doctor.doctor_command import EXPECTED_FILES, LEAST_FILES, clock, files
from herenow.cli.doctor.findings import Weight
from herenow.cli.doctor.terms_check import agreement
from herenow.settings import agreed_terms, load

NOW = 1_790_000_000.0


@pytest.fixture(autouse=True)
def enough_files(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (EXPECTED_FILES, EXPECTED_FILES))


def test_doctor_accepts_a_fresh_machine_and_creates_no_files(herenow):
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "problem" not in result.stdout
    assert list(Path().iterdir()) == []


def test_doctor_accepts_an_existing_database(herenow):
    herenow("migrate")
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "herenow.db can be opened and written." in result.stdout
    assert "Up to date" in result.stdout


def test_doctor_reports_a_database_of_a_newer_version(herenow):
    herenow("migrate")
    with closing(sqlite3.connect("herenow.db")) as db:
        db.execute("update herenow_schema set version_num = '9999'")
        db.commit()
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "run the version that wrote it" in " ".join(result.stdout.split())


def test_doctor_gives_advice_on_an_empty_database_file(herenow):
    Path("herenow.db").touch()
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "herenow migrate brings it up to date" in result.stdout


@pytest.mark.parametrize("spoil", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"no database" * 99)])
def test_doctor_reports_a_database_file_that_is_not_a_database(herenow, spoil):
    spoil(Path("herenow.db"))
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "herenow.db cannot be used" in result.stdout


def test_doctor_reports_a_missing_folder_for_the_database_file(herenow):
    result = herenow("doctor", "--ledger", "sqlite:///no/herenow.db")
    assert result.exit_code == 1
    assert "cannot be created" in result.stdout


def test_doctor_gives_advice_on_a_database_in_memory(herenow):
    result = herenow("doctor", "--ledger", "sqlite://")
    assert result.exit_code == 0
    assert "are lost when the process ends" in result.stdout


def test_doctor_reports_a_secret_file_readable_by_others(herenow):
    herenow("token", "ana")
    Path("herenow.secret").chmod(0o644)
    result = herenow("doctor")
    assert result.exit_code == 1
    assert "chmod 600" in result.stdout


def test_doctor_exits_with_2_on_a_wrong_setting(herenow):
    assert herenow("doctor", "--dead-after", "1").exit_code == 2


def test_doctor_gives_advice_on_an_unknown_environment_variable(herenow, monkeypatch):
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
def test_doctor_checks_the_file_descriptor_limit(limit, weight):
    (finding,) = files(limit)
    assert finding.weight is weight


def test_doctor_reports_a_system_clock_in_1970():
    (finding,) = clock(None, 3600.0)
    assert finding.weight is Weight.PROBLEM


def test_doctor_reports_a_system_clock_behind_the_time_of_the_database_file(tmp_path):
    path = tmp_path / "herenow.db"
    path.touch()
    os.utime(path, (NOW, NOW))
    assert [finding.weight for finding in clock(path, NOW - 3600)] == [Weight.PROBLEM]
    assert [finding.weight for finding in clock(path, NOW)] == [Weight.FINE]


def test_doctor_lists_the_usable_keys_of_a_jwks_file(herenow):
    Path("jwks.json").write_bytes(jwks(public_jwk("ES256"), public_jwk("EdDSA"), {"kty": "oct", "k": "eA"}))
    result = herenow("doctor", "--jwks-file", "jwks.json")
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "jwks.json has keys: 1 for ES256, 1 for EdDSA." in said
    assert "Not used: key 3 is of a type that is not used here" in said
    assert "set jwt_issuer and jwt_audience" in said
    assert "None, and none is needed" in said
    named = herenow("doctor", "--jwks-file", "jwks.json", "--jwt-issuer", "i", "--jwt-audience", "a")
    assert "made for other applications" not in " ".join(named.stdout.split())


def test_doctor_reports_jwks_keys_that_cannot_be_loaded(herenow):
    Path("jwks.json").write_text("{}")
    for where in (["--jwks-file", "jwks.json"], ["--jwks-url", "http://user:hunter2@127.0.0.1:1/jwks"]):
        result = herenow("doctor", *where)
        assert result.exit_code == 1
        assert "cannot be used: it" in " ".join(result.stdout.split())
        assert "hunter2" not in result.stdout


# --- Terms that nodes on one store must agree on


def agreed(**flags):
    """[(weight, sentence)] compared with a node that has default settings, another ledger and another secret."""
    settings = load({"engine": "redis://127.0.0.1:1", **flags}, None)
    theirs = agreed_terms(load({}, None), "theirs", ("y" * 32,)) | {"buckets per shard": "9"}
    return [(finding.weight, finding.sentence) for finding in agreement(settings, theirs)]


def test_doctor_compares_no_settings_with_a_live_store_that_no_node_has_used():
    assert [*agreement(load({}, None), {})] == []
    assert list(Path().iterdir()) == []


def test_doctor_reports_a_database_and_a_secret_that_differ_from_those_of_the_running_nodes():
    assert [weight for weight, _ in agreed()] == [Weight.PROBLEM] * 2
    ledger, secret = (sentence for _, sentence in agreed())
    assert ledger.startswith("The database sqlite:///herenow.db does not exist yet")
    assert secret.startswith("The nodes on this store have another secret")
    assert list(Path().iterdir()) == []


def test_doctor_reports_that_a_database_in_memory_is_not_the_one_of_the_running_nodes():
    [(_, ledger)] = agreed(ledger="sqlite://", secret="y" * 32)
    assert ledger.startswith("The database sqlite:// does not exist yet")


def test_doctor_does_not_compare_a_database_that_cannot_be_read_with_that_of_the_nodes():
    Path("herenow.db").write_bytes(b"no database" * 99)
    assert [weight for weight, _ in agreed(secret="y" * 32)] == [Weight.FINE]


def test_doctor_compares_the_generated_secret_with_that_of_the_running_nodes(herenow):
    herenow("token", "ana")
    settings = load({}, None)
    theirs = {"secret": agreed_terms(settings, "", (Path("herenow.secret").read_text().strip(),))["secret"]}
    assert [finding.weight for finding in agreement(settings, theirs)] == [Weight.FINE]
    [finding] = agreement(settings, {"secret": "none"})
    assert finding.sentence.startswith("The nodes on this store verify tokens only with public keys")


# --- Relations


class Answering(BaseHTTPRequestHandler):
    """An application in a thread; class attributes define its behaviour."""

    checks = True
    related = False
    status = 200

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        message = self.headers["herenow-timestamp"].encode() + b"." + body
        wanted = "v1=" + hmac.new(SHARED.encode(), message, hashlib.sha256).hexdigest()
        refused = self.checks and self.headers["herenow-signature"] != wanted
        rows = json.loads(body)["pairs"]
        pairs = [{"a": a, "b": b, "mutual_follow": self.related, "contact": False} for a, b in rows]
        answer = json.dumps({"pairs": pairs}).encode()
        self.send_response(403 if refused else self.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


SHARED = "shared by herenow and the application, long enough"


@pytest.fixture
def asked(herenow, monkeypatch):
    """Runs doctor against an application of this class."""

    def run(kind):
        with HTTPServer(("127.0.0.1", 0), kind) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                monkeypatch.setenv("HERENOW_RELATIONS", f"http://127.0.0.1:{server.server_port}/")
                monkeypatch.setenv("HERENOW_RELATIONS_SECRET", SHARED)
                result = herenow("doctor")
                return result.exit_code, " ".join(result.stdout.split())
            finally:
                server.shutdown()
                thread.join()

    return run


def test_doctor_accepts_a_relations_application_that_answers_and_checks_signatures(asked):
    code, said = asked(Answering)
    assert code == 0
    assert "/ answers." in said
    assert "rejects a request with a wrong signature" in said
    assert "relations.failed" not in said


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ({"checks": False}, "anyone can read from it who is related to whom"),
        ({"related": True}, "reports a relation of two made-up users"),
        ({"status": 500}, "gave no valid answer: It answers with status 500"),
        ({"status": 302}, "the setting must name the final address"),
        ({"status": 401}, "is relations_secret the same there?"),
    ],
)
def test_doctor_reports_a_relations_application_that_answers_wrongly_or_checks_no_signature(asked, behaviour, sentence):
    code, said = asked(type("Wrong", (Answering,), behaviour))
    assert code == 1
    assert sentence in said


def test_doctor_reports_an_unreachable_relations_application(herenow, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        monkeypatch.setenv("HERENOW_RELATIONS", f"http://127.0.0.1:{taken.getsockname()[1]}/")
        monkeypatch.setenv("HERENOW_RELATIONS_SECRET", SHARED)
        result = herenow("doctor")
    assert result.exit_code == 1
    assert "gave no valid answer" in result.stdout


def test_doctor_points_out_that_with_open_relations_everybody_sees_everybody(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_RELATIONS", "open")
    result = herenow("doctor")
    assert result.exit_code == 0
    assert "All users see each other" in result.stdout
