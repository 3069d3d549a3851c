"""`herenow token` prints a token that a node with the same settings accepts."""

import time
from pathlib import Path

import pytest

from herenow.gateway.tokens import verify
from herenow.secret import resolve_secret
from herenow.settings import Settings

SECRET = "correct horse battery staple, twice over"


def test_a_token_is_signed_with_the_configured_secret(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    claims = claims_of(herenow("token", "ana", "--ttl", "60"), SECRET)
    assert claims.user == "ana"
    assert not claims.is_service
    assert claims.expires_at_ms - claims.issued_at_ms == 60_000


def test_a_service_token(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_SECRET", SECRET)
    assert claims_of(herenow("token", "backend", "--scope", "service"), SECRET).is_service


def test_a_token_minted_before_the_first_start_fits_the_node_that_starts_later(herenow):
    result = herenow("token", "ana")
    assert Path("herenow.secret").exists()
    assert claims_of(result, resolve_secret(Settings())).user == "ana"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ana bob"], "An id contains no control character, whitespace"),
        (["ana", "--ttl", "0"], "--ttl = 0 is not allowed"),
        (["ana", "--ttl", "nan"], "--ttl = nan is not allowed"),
        (["ana", "--ttl", "86401"], "at most token_max_ttl, which is 86400 s"),
        (["ana", "--scope", "root"], "Invalid value for '--scope'"),
        (["ana", "--ledger", "sqlite://"], "configure a secret to mint tokens"),
        ([], "Missing argument 'USER'"),
    ],
)
def test_wrong_usage_is_said_with_exit_code_2(herenow, arguments, said):
    result = herenow("token", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def claims_of(result, secret):
    assert result.exit_code == 0
    return verify(result.stdout.strip(), secret, now=time.time(), max_ttl=86_400)
