"""A JWKS document gives keys that are each for one algorithm, or an error."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from tests.transport.issuer import ALGORITHMS, jwks, number, public_jwk

from herenow.transport.auth import BadKeys
from herenow.transport.auth.jwks import MAX_BYTES, MAX_KEYS, parse_jwks


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_jwk_is_used_for_the_signature_algorithm_of_its_key_type(algorithm):
    [key] = parse_jwks(jwks(public_jwk(algorithm))).keys
    assert (key.algorithm, key.kid) == (algorithm, f"{algorithm}-one")


def test_optional_members_of_a_jwk_may_be_missing():
    bare = {name: value for name, value in public_jwk("ES256").items() if name not in ("kid", "alg", "use")}
    [key] = parse_jwks(jwks({**bare, "key_ops": ["verify"], "x5t": "whatever"})).keys
    assert key.kid is None


def test_private_members_of_a_jwk_are_not_read():
    [key] = parse_jwks(jwks({**public_jwk("RS256"), "d": "AQAB", "p": "x"})).keys
    assert not hasattr(key.key, "private_numbers")


RSA, EC, OKP = (public_jwk(algorithm) for algorithm in ALGORITHMS)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ({"kty": "oct", "k": "c2VjcmV0", "kid": "x"}, "not used here"),
        ({**RSA, "alg": "HS256"}, "another algorithm than RS256"),
        ({**RSA, "alg": "RS512"}, "another algorithm than RS256"),
        ({**RSA, "alg": ["RS256"]}, "another algorithm"),
        ({**RSA, "use": "enc"}, "not for signatures"),
        ({**RSA, "key_ops": ["sign"]}, "not for signatures"),
        ({**RSA, "key_ops": "verify"}, "not for signatures"),
        ({**RSA, "kid": 7}, "kid"),
        ({**RSA, "kid": "x" * 257}, "kid"),
        ({**RSA, "kty": ["RSA"]}, "not used here"),
        ({**RSA, "n": "!!!"}, "damaged"),
        ({**RSA, "n": 7}, "lacks n"),
        ({**RSA, "e": number(4)}, "damaged"),
        ({**RSA, "e": number(1 << 40)}, "damaged"),
        ({**RSA, "n": number((1 << 9000) + 1)}, "9001 bits"),
        ({**EC, "crv": "P-384"}, "another curve"),
        ({**EC, "y": EC["x"]}, "damaged"),
        ({**OKP, "crv": "X25519"}, "another curve"),
        ({**OKP, "x": OKP["x"][:-4]}, "damaged"),
        ("a string", "not an object"),
    ],
)
def test_an_unusable_jwk_is_skipped_with_a_reason(key, why):
    document = parse_jwks(jwks(key, public_jwk("EdDSA", "two")))
    assert [found.kid for found in document.keys] == ["EdDSA-two"]
    assert why in document.left_out[0]
    with pytest.raises(BadKeys, match="no key that can be used"):
        parse_jwks(jwks(key))


def test_a_jwk_with_a_weak_rsa_key_is_refused():
    weak = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    with pytest.raises(BadKeys, match="has 1024 bits"):
        parse_jwks(jwks({"kty": "RSA", "n": number(weak.n), "e": number(weak.e)}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b"\xff",
        b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
        jwks(*[RSA] * (MAX_KEYS + 1)),
    ],
    ids=range(10),
)
def test_a_malformed_jwks_document_is_refused(raw):
    with pytest.raises(BadKeys):
        parse_jwks(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["keys", "kty", "kid", "n", "e", "x", "y", "crv", "alg", "use", "key_ops"]),
                inner,
                max_size=6,
            )
        ),
    )
)
def test_any_json_document_is_parsed_as_jwks_or_refused_without_another_error(value):
    for document in (value, {"keys": [value]}, {"keys": [{**RSA, **value} if isinstance(value, dict) else value]}):
        try:
            assert parse_jwks(json.dumps(document).encode()).keys
        except BadKeys:
            pass
