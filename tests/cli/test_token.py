"""`herenow token` prints a token that a node with the same settings accepts."""

import time
from pathlib import Path

import pytest

from herenow.errors import ProtocolError
from herenow.secret import resolve_secrets
from herenow.settings import Settings
from herenow.transport.auth import Expected, verify

SECRET = "correct horse battery staple, twice over"


def test_herenow_token_prints_a_token_signed_with_the_configured_secret(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    claims = claims_of(herenow("token", "ana", "--ttl", "60"), SECRET)
    assert claims.user == "ana"
    assert not claims.is_service
    assert claims.expires_at_ms - claims.issued_at_ms == 60_000


def test_herenow_token_with_scope_service_prints_a_service_token(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    assert claims_of(herenow("token", "backend", "--scope", "service"), SECRET).is_service


@pytest.mark.parametrize("options", [["--scope", "read", "--scope", "beats"], ["--scope", "read beats read"]])
def test_herenow_token_puts_one_or_several_scopes_into_the_token(herenow, monkeypatch, options):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    assert claims_of(herenow("token", "backend", *options), SECRET).scope == "read beats"


def test_a_token_of_herenow_token_before_the_first_server_start_is_valid_for_the_server(herenow):
    result = herenow("token", "ana")
    assert Path("herenow.secret").exists()
    assert claims_of(result, resolve_secrets(Settings())[0]).user == "ana"


def test_herenow_token_puts_the_configured_issuer_and_audience_into_the_token(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    result = herenow("token", "ana", "--jwt-issuer", "https://i", "--jwt-audience", "a,b")
    minted, now = result.stdout.strip(), time.time()
    expected = Expected("https://i", ("a",))
    assert verify(minted, (SECRET,), now=now, max_ttl=86_400, expected=expected).user == "ana"
    for other in (Expected("https://j", ("a",)), Expected("https://i", ("c",)), Expected("https://i")):
        with pytest.raises(ProtocolError, match="token_claims"):
            verify(minted, (SECRET,), now=now, max_ttl=86_400, expected=other)


def test_herenow_token_is_refused_when_only_jwks_keys_and_no_secret_are_configured(herenow):
    result = herenow("token", "ana", "--jwks-url", "https://issuer.example/jwks")
    assert result.exit_code == 2
    assert "configure a secret as well" in result.stderr
    assert not Path("herenow.secret").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ana bob"], "An id contains no control character, whitespace"),
        (["ana", "--ttl", "0"], "--ttl = 0 is not allowed"),
        (["ana", "--ttl", "nan"], "--ttl = nan is not allowed"),
        (["ana", "--ttl", "86401"], "at most token_max_ttl, which is 86400 s"),
        (
            ["ana", "--scope", "root"],
            "--scope = 'root' is not allowed: it must be service, or one or several of beats, gateway,",
        ),
        (["ana", "--scope", ""], "--scope is empty"),
        (["ana", "--ledger", "sqlite://"], "configure a secret to make tokens"),
        ([], "Missing argument 'USER'"),
    ],
)
def test_wrong_usage_of_herenow_token_exits_with_2(herenow, arguments, said):
    result = herenow("token", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def claims_of(result, secret):
    assert result.exit_code == 0
    return verify(result.stdout.strip(), (secret,), now=time.time(), max_ttl=86_400)
