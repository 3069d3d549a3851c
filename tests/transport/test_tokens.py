"""A token is valid for exactly one user, for a limited time, and only if we signed it."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from herenow.errors import ProtocolError
from herenow.settings import fingerprint
from herenow.transport.auth import Auth
from herenow.transport.auth.tokens import MAX_BYTES, mint, verify
from herenow.wire.inputs import Scope
from herenow_testing.world.manual_clock import LoopClock

SECRET = "s" * 32
NOW = 1_790_000_000.5
DAY = 86_400.0


def test_a_minted_token_has_user_expiry_and_issue_time():
    claims = verify(mint(SECRET, "ana", scope=None, ttl=3600, now=NOW), (SECRET,), now=NOW, max_ttl=DAY)
    assert claims.user == "ana"
    assert claims.scope is None
    assert not claims.is_service
    assert claims.expires_at_ms == 1_790_003_600_500
    assert claims.issued_at_ms == 1_790_000_000_500


def test_a_token_minted_with_scope_service_is_a_service_token():
    token = mint(SECRET, "backend", scope="service", ttl=60, now=NOW)
    assert verify(token, (SECRET,), now=NOW, max_ttl=DAY).is_service


def test_the_pyjwt_library_reads_a_minted_token():
    token = mint(SECRET, "zoë", scope="service", ttl=60, now=NOW)
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    said = jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})
    assert said == {"sub": "zoë", "iat": NOW, "exp": NOW + 60, "scope": "service"}


def test_minting_a_token_for_an_invalid_user_id_is_refused():
    with pytest.raises(ProtocolError, match="invalid_id"):
        mint(SECRET, "ana bob", scope=None, ttl=60, now=NOW)


def test_a_token_is_valid_until_just_before_its_expiry():
    token = mint(SECRET, "ana", scope=None, ttl=60, now=NOW)
    assert verify(token, (SECRET,), now=NOW + 59.9, max_ttl=DAY).user == "ana"
    assert code_of(token, now=NOW + 60) == "token_expired"


@pytest.mark.parametrize("token", [None, ""])
def test_an_absent_token_is_refused_with_the_code_token_missing(token):
    assert code_of(token) == "token_missing"


@pytest.mark.parametrize(
    "token", ["garbage", "a.b", "a.b.c", "a.b.c.d", "..", "é.ü.ø", "\ud800.a.b", "e30.e30.", " ", "x" * (MAX_BYTES + 1)]
)
def test_garbage_in_place_of_a_token_is_refused_without_a_crash(token):
    assert code_of(token) in {"token_malformed", "token_algorithm"}


@given(st.text(max_size=60) | st.from_regex(r"[\w-]{0,20}\.[\w-]{0,20}\.[\w-]{0,20}", fullmatch=True))
def test_no_random_text_is_accepted_as_a_token(text):
    assert code_of(text).startswith("token_")


@pytest.mark.parametrize("head", [b"[" * 4000, b'{"a":' * 800, b'"HS256"', b"[]", b"\xff", b'{"alg":NaN}'])
def test_a_token_with_a_hostile_header_is_refused_as_malformed(head):
    assert code_of(signed(head, b"{}")) == "token_malformed"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", "hs256", None, 1, ["HS256"]])
def test_an_unsigned_or_oddly_signed_token_is_refused(name):
    head = json.dumps({"alg": name}).encode()
    assert code_of(part(head) + "." + part(json.dumps(valid()).encode()) + ".") == "token_algorithm"
    assert code_of(signed(head, json.dumps(valid()).encode())) == "token_algorithm"


def test_a_token_whose_header_names_no_algorithm_is_refused():
    assert code_of(signed(b"{}", json.dumps(valid()).encode())) == "token_algorithm"


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_a_token_signed_with_another_hmac_algorithm_is_refused_even_with_the_right_secret(algorithm):
    token = jwt.encode(valid(), SECRET * 2, algorithm=algorithm)
    assert code_of(token, secrets=(SECRET * 2,)) == "token_algorithm"


def test_a_token_signed_with_an_rsa_key_is_refused_where_only_a_secret_is_configured():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert code_of(jwt.encode(valid(), key, algorithm="RS256")) == "token_algorithm"


@pytest.mark.parametrize("extension", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}])
def test_a_token_whose_header_demands_an_extension_is_refused(extension):
    head = json.dumps({"alg": "HS256", **extension}).encode()
    assert code_of(signed(head, json.dumps(valid()).encode())) == "token_malformed"


def test_an_hs256_token_is_refused_when_no_secret_is_configured():
    token = token_with(valid())
    assert verify(token, (SECRET,), now=NOW, max_ttl=DAY).user == "ana"
    assert code_of(token, secrets=()) == "token_algorithm"


def test_a_token_whose_body_is_not_utf8_is_refused_as_malformed():
    body = json.dumps(valid())
    for encoding in ("utf-16", "utf-32-le", "utf-8-sig"):
        assert code_of(signed(b'{"alg":"HS256"}', body.encode(encoding))) == "token_malformed"


def test_a_token_with_a_wrong_signature_is_refused():
    token = mint(SECRET, "ana", scope=None, ttl=60, now=NOW)
    assert code_of(token, secrets=("t" * 32,)) == "token_bad_signature"
    head, body, signature = token.split(".")
    other = mint(SECRET, "bob", scope=None, ttl=60, now=NOW).split(".")[1]
    assert code_of(f"{head}.{other}.{signature}") == "token_bad_signature"
    assert code_of(f"{head}.{body}.") == "token_bad_signature"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"exp": NOW - 1}, "token_expired"),
        ({"exp": 0}, "token_expired"),
        ({"exp": None}, "token_claims"),
        ({"exp": str(int(NOW + 60))}, "token_claims"),
        ({"exp": True}, "token_claims"),
        ({"exp": [NOW + 60]}, "token_claims"),
        ({"exp": -1}, "token_claims"),
        ({"exp": NOW + DAY + 60}, "token_claims"),
        ({"exp": 32_503_680_000}, "token_claims"),
        ({"exp": 10**400}, "token_claims"),
        ({"iat": NOW + 60}, "token_claims"),
        ({"iat": "now"}, "token_claims"),
        ({"iat": False}, "token_claims"),
        ({"nbf": NOW + 60}, "token_claims"),
        ({"nbf": None}, "token_claims"),
        ({"sub": ""}, "token_claims"),
        ({"sub": None}, "token_claims"),
        ({"sub": True}, "token_claims"),
        ({"sub": 1.0}, "token_claims"),
        ({"sub": "a b"}, "token_claims"),
        ({"sub": "a,b"}, "token_claims"),
        ({"sub": "\ud800"}, "token_claims"),
        ({"sub": ["ana"]}, "token_claims"),
        ({"scope": None}, "token_claims"),
        ({"scope": ["service"]}, "token_claims"),
        ({"scope": True}, "token_claims"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims, code):
    assert code_of(token_with({**valid(), **claims})) == code


@pytest.mark.parametrize("name", ["exp", "sub"])
def test_a_token_without_a_required_claim_is_refused(name):
    claims = valid()
    del claims[name]
    assert code_of(token_with(claims)) == "token_claims"


@pytest.mark.parametrize(
    "body",
    [
        f'{{"sub":"ana","sub":"bob","exp":{NOW + 60}}}',
        f'{{"sub":"ana","exp":{NOW + 60},"exp":{NOW + 60}}}',
        f'{{"sub":"ana","exp":{NOW + 60},"extra":{{"a":1,"a":2}}}}',
    ],
)
def test_a_token_with_a_duplicate_claim_is_refused(body):
    assert code_of(signed(b'{"alg":"HS256"}', body.encode())) == "token_claims"


@pytest.mark.parametrize("body", [b"[]", b"null", b"", b"{", b'{"exp":NaN}', b'{"exp":1' + b"0" * 5000 + b"}"])
def test_a_token_whose_body_is_no_json_object_is_refused_as_malformed(body):
    assert code_of(signed(b'{"alg":"HS256"}', body)) == "token_malformed"


@pytest.mark.parametrize(("sub", "user"), [(456, "456"), ("456", "456"), ("01", "01"), (0, "0")])
def test_a_token_with_an_integer_subject_is_for_the_user_with_that_number_as_id(sub, user):
    assert verify(token_with({**valid(), "sub": sub}), (SECRET,), now=NOW, max_ttl=DAY).user == user


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_a_token_of_an_issuer_whose_clock_runs_a_little_ahead_is_accepted(name):
    assert verify(token_with({**valid(), name: NOW + 4}), (SECRET,), now=NOW, max_ttl=DAY).user == "ana"


@pytest.mark.parametrize(
    ("scope", "service"),
    [
        ("service", True),
        ("openid service", True),
        ("openid read", False),
        ("openid herenow:read", True),
        ("", False),
        ("openid profile", False),
        ("services", False),
        ("SERVICE", False),
    ],
)
def test_a_token_whose_scope_contains_a_word_of_herenow_is_a_service_token(scope, service):
    assert verify(token_with({**valid(), "scope": scope}), (SECRET,), now=NOW, max_ttl=DAY).is_service is service


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        ("service", set(Scope)),
        ("read service", set(Scope)),
        ("read graph", {Scope.READ, Scope.GRAPH}),
        ("read openid", set()),
        ("herenow:read openid", {Scope.READ}),
        ("openid", set()),
        ("READ", set()),
    ],
)
def test_a_token_grants_the_known_scopes_of_its_claim(scope, granted):
    assert verify(token_with({**valid(), "scope": scope}), (SECRET,), now=NOW, max_ttl=DAY).scopes == granted


def test_a_token_without_the_iat_claim_has_no_issue_time():
    assert verify(token_with(valid()), (SECRET,), now=NOW, max_ttl=DAY).issued_at_ms is None


OLD, NEW = "the old secret, which is long enough for it", "the new secret, which is long enough for it"


@pytest.mark.parametrize("signer", [OLD, NEW])
@pytest.mark.parametrize("named", ["no", "its own", "unknown"])
def test_a_token_signed_with_one_of_several_secrets_is_accepted(signer, named):
    headers = {"no": {}, "its own": {"kid": fingerprint(signer)}, "unknown": {"kid": "mine"}}[named]
    token = jwt.encode(valid(), signer, "HS256", headers=headers)
    assert verify(token, (NEW, OLD), now=NOW, max_ttl=DAY).user == "ana"
    assert code_of(token, secrets=(SECRET,)) == "token_bad_signature"


def test_a_token_that_names_another_secret_than_its_own_by_kid_is_refused():
    token = jwt.encode(valid(), OLD, "HS256", headers={"kid": fingerprint(NEW)})
    assert code_of(token, secrets=(NEW, OLD)) == "token_bad_signature"


async def test_replaced_secrets_of_an_authenticator_are_used_for_tokens_that_it_has_verified_before():
    clock = LoopClock()
    auth, now = Auth((OLD,), clock, DAY), clock.now() / 1000
    old, new = (mint(secret, "ana", scope=None, ttl=60, now=now) for secret in (OLD, NEW))
    assert auth.check(old).user == "ana"
    auth.use_secrets((NEW, OLD))
    assert (auth.check(old).user, auth.check(new).user) == ("ana", "ana")
    auth.use_secrets((NEW,))
    assert auth.check(new).user == "ana"
    with pytest.raises(ProtocolError, match="token_bad_signature"):
        auth.check(old)


def test_the_error_about_a_refused_token_never_shows_the_token():
    token = token_with({**valid(), "sub": "a very secret user"})
    with pytest.raises(ProtocolError) as caught:
        verify(token, (SECRET,), now=NOW, max_ttl=DAY)
    assert token not in str(caught.value)
    assert "secret user" not in str(caught.value)


def code_of(token, *, secrets=(SECRET,), now=NOW):
    with pytest.raises(ProtocolError) as caught:
        verify(token, secrets, now=now, max_ttl=DAY)
    return caught.value.code


def valid():
    return {"sub": "ana", "exp": NOW + 60}


def token_with(claims):
    return signed(b'{"alg":"HS256","typ":"JWT"}', json.dumps(claims).encode())


def signed(head, body):
    message = f"{part(head)}.{part(body)}"
    return f"{message}.{part(hmac.digest(SECRET.encode(), message.encode(), hashlib.sha256))}"


def part(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize("part", [1, 2])
def test_a_token_with_another_spelling_of_its_base64_is_refused(part):
    """The last character of 43 has two unused bits: four texts decode to one signature."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = next(
        t for n in range(9) if len((t := mint(SECRET, "a" * n + "b", scope=None, ttl=60, now=NOW)).split(".")[1]) % 4
    )
    parts = token.split(".")
    assert len(parts[part]) % 4
    last = parts[part][-1]
    parts[part] = parts[part][:-1] + alphabet[alphabet.index(last) | 1]
    if part == 1:
        signed = f"{parts[0]}.{parts[1]}"
        digest = hmac.digest(SECRET.encode(), signed.encode(), hashlib.sha256)
        parts[2] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert alphabet.index(last) % 2 == 0
    assert code_of(".".join(parts)) == "token_malformed"
