"""J2 with an issuer's keys, on a whole node over real sockets, by REST and by WebSocket."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from contextlib import asynccontextmanager

import httpx2
import jwt
import pytest
import websockets
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.processes import SECRET
from tests.transport.issuer import ALGORITHMS, issuing, private_key, public_jwk, signed
from tests.transport.test_contract_over_websocket import closed_with, node
from websockets.exceptions import InvalidStatus

ISSUER = "https://issuer.example"
NAMES = {"iss": ISSUER, "aud": "herenow"}


def token(algorithm="RS256", name="one", **claims):
    return signed(algorithm, name, **{**NAMES, **claims})


@asynccontextmanager
async def guarded(issuer, **settings):
    chosen = {"jwks_url": issuer.url, "jwt_issuer": ISSUER, "jwt_audience": ("herenow",), **settings}
    async with node(**chosen) as here:
        yield here


@pytest.fixture(params=["picows", "websockets"])
async def place(request):
    """(issuer, node)"""
    async with issuing() as issuer, guarded(issuer, websocket=request.param) as here:
        yield issuer, here


async def rest(here, sent, path="/api/v1/presence/me"):
    headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
    async with httpx2.AsyncClient(base_url=here.url, headers=headers) as http:
        answer = await http.get(path)
    return answer.json().get("code", "ok") if answer.status_code != 200 else "ok"


async def socket(here, sent, **options):
    headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
    async with websockets.connect(here.ws, additional_headers=headers, **options) as opened:
        try:
            async with asyncio.timeout(10):
                return json.loads(await opened.recv())["type"]
        except websockets.ConnectionClosed:
            return opened.close_code, opened.close_reason


async def both(here, sent):
    return await rest(here, sent), await socket(here, sent)


IN = ("ok", "presence.welcome")


def out(code):
    return code, (4401, code)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_signed_with_any_supported_jwks_algorithm_is_accepted_by_rest_and_websocket(place, algorithm):
    assert await both(place[1], token(algorithm)) == IN


async def test_a_token_signed_with_the_configured_secret_is_accepted_beside_jwks_keys(place):
    minted = jwt.encode({"sub": "ana", "exp": time.time() + 60, **NAMES}, SECRET, "HS256")
    assert await both(place[1], minted) == IN


def unsigned():
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'kid': 'RS256-one'})}.{part({'sub': 'ana', 'exp': time.time() + 60, **NAMES})}."


def confused(encoding):
    """HS256 with the public key as the secret, as an attacker could make it; built by hand because PyJWT refuses to."""
    public = private_key("RS256").public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    head, payload, _ = token().split(".")
    said = json.loads(base64.urlsafe_b64decode(head + "=="))
    head = base64.urlsafe_b64encode(json.dumps({**said, "alg": "HS256"}).encode()).rstrip(b"=").decode()
    mac = hmac.new(public, f"{head}.{payload}".encode(), hashlib.sha256).digest()
    return f"{head}.{payload}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def with_another_algorithm():
    head, rest_of_it = token("RS256").split(".", 1)
    said = json.loads(base64.urlsafe_b64decode(head + "=="))
    head = base64.urlsafe_b64encode(json.dumps({**said, "alg": "ES256"}).encode()).rstrip(b"=").decode()
    return f"{head}.{rest_of_it}"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (lambda: None, "token_missing"),
        (lambda: "garbage", "token_malformed"),
        (lambda: token("RS256", "stranger", kid="RS256-one"), "token_bad_signature"),
        (lambda: token("EdDSA", "stranger", kid="EdDSA-one"), "token_bad_signature"),
        (lambda: token("ES256", "stranger", kid=None), "token_bad_signature"),
        (lambda: token("RS256", "stranger"), "token_unknown_key"),
        (unsigned, "token_algorithm"),
        (lambda: confused(Encoding.PEM), "token_bad_signature"),
        (lambda: confused(Encoding.DER), "token_bad_signature"),
        (with_another_algorithm, "token_algorithm"),
        (lambda: token(exp=time.time() - 1), "token_expired"),
        (lambda: token(exp=time.time() + 90_000), "token_claims"),
        (lambda: token(aud="another"), "token_claims"),
        (lambda: token(iss="https://another.example"), "token_claims"),
        (lambda: token(headers={"kid": "x" * 300}), "token_malformed"),
        (lambda: token("RS256", "stranger", headers={"jwk": public_jwk("RS256", "stranger")}), "token_unknown_key"),
    ],
)
async def test_j2_a_bad_token_is_refused_by_rest_and_websocket_of_a_node_with_jwks_keys(place, bad, code):
    assert await both(place[1], bad()) == out(code)


async def test_j2_a_request_from_a_foreign_origin_is_refused_even_with_a_good_token(place):
    _, here = place
    with pytest.raises(InvalidStatus) as refused:
        await socket(here, token(), origin="https://evil.example")
    assert refused.value.response.status_code == 403
    async with httpx2.AsyncClient(base_url=here.url) as http:
        headers = {"authorization": f"Bearer {token()}", "origin": "https://evil.example"}
        answer = await http.get("/api/v1/presence/me", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden_origin")


async def test_a_websocket_upgrade_waits_while_the_key_of_its_token_is_fetched(place):
    issuer, here = place
    issuer.publishes(public_jwk("RS256"), public_jwk("ES256", "new"))
    issuer.delay = 0.3
    headers = {"authorization": f"Bearer {token('ES256', 'new')}"}
    async with websockets.connect(here.ws, additional_headers=headers) as opened:
        await opened.send('{"type":"presence.active","id":1}')  # before the token is verified
        types = [json.loads(await opened.recv())["type"] for _ in range(3)]
    assert sorted(types) == ["presence.ok", "presence.self", "presence.welcome"]
    assert types[0] == "presence.welcome"
    assert issuer.asked == 2
    assert await rest(here, token("ES256")) == "keys_unavailable"  # searched again after half a minute at the earliest


async def test_renewing_the_token_of_a_websocket_with_one_of_a_new_key_is_accepted(place):
    issuer, here = place
    headers = {"authorization": f"Bearer {token()}"}
    async with websockets.connect(here.ws, additional_headers=headers) as opened:
        issuer.publishes(public_jwk("EdDSA", "new"))
        await opened.send(json.dumps({"type": "presence.refresh", "token": token("EdDSA", "new"), "id": 7}))
        async with asyncio.timeout(10):
            while (frame := json.loads(await opened.recv())).get("id") != 7:
                pass
    assert frame["type"] == "presence.ok"
    assert await rest(here, token()) in ("token_unknown_key", "keys_unavailable")  # its key was removed


async def test_a_node_starts_while_its_jwks_url_is_down_and_readyz_reports_it():
    async with issuing() as issuer:
        issuer.status = "500 Oops"
        async with guarded(issuer, secret=None) as here:
            async with httpx2.AsyncClient(base_url=here.url) as http:
                ready = (await http.get("/readyz")).json()
                assert [trouble["what"] for trouble in ready["degraded"]] == ["jwks"]
                refused = await http.get("/api/v1/presence/me", headers={"authorization": f"Bearer {token()}"})
            assert (refused.status_code, refused.json()["code"]) == (503, "keys_unavailable")
            assert refused.headers["retry-after"]
            code, reason = await closed_with(here.ws, additional_headers={"authorization": f"Bearer {token()}"})
            assert code == 1013
            assert reason.startswith("retry_after_ms=")
            issuer.status = "200 OK"
            async with asyncio.timeout(20):
                while await both(here, token()) != IN:
                    await asyncio.sleep(0.1)
            assert await rest(here, None, "/readyz") == "ok"


async def test_a_node_with_jwks_keys_and_no_secret_generates_none_and_refuses_hs256_tokens(tmp_path):
    async with issuing() as issuer:
        async with guarded(issuer, secret=None, ledger=f"sqlite:///{tmp_path}/herenow.db") as here:
            minted = jwt.encode({"sub": "ana", "exp": time.time() + 60, **NAMES}, SECRET, "HS256")
            assert await both(here, minted) == out("token_algorithm")
        assert not (tmp_path / "herenow.secret").exists()


async def test_a_revoked_token_is_refused_and_its_websockets_are_closed(place):
    _, here = place
    old = token()
    headers = {"authorization": f"Bearer {old}"}
    service = {"authorization": f"Bearer {token(sub='backend', scope='service')}"}
    async with websockets.connect(here.ws, additional_headers=headers) as opened:
        await opened.recv()
        async with httpx2.AsyncClient(base_url=here.url + "/api/v1", headers=service) as http:
            answer = await http.post("/users/ana/revoke")
            assert answer.status_code == 200
        async with asyncio.timeout(2):
            await opened.wait_closed()
    assert (opened.close_code, opened.close_reason) == (4401, "token_revoked")
    assert await both(here, old) == out("token_revoked")
    assert await both(here, token(iat=answer.json()["issued_before"] / 1000 + 0.001)) == IN


async def test_a_websocket_refuses_a_revoked_token_as_renewal_and_stays_open_with_a_newer_one(place):
    _, here = place
    service = {"authorization": f"Bearer {token(sub='backend', scope='service')}"}
    now = time.time()
    async with websockets.connect(
        here.ws, additional_headers={"authorization": f"Bearer {token(iat=now - 60)}"}
    ) as opened:

        async def refresh(frame_id, **claims):
            await opened.send(json.dumps({"type": "presence.refresh", "token": token(**claims), "id": frame_id}))
            async with asyncio.timeout(10):
                while (frame := json.loads(await opened.recv())).get("id") != frame_id:
                    pass
            return frame.get("code", "ok")

        assert await refresh(1, iat=now - 10) == "ok"
        async with httpx2.AsyncClient(base_url=here.url + "/api/v1", headers=service) as http:
            await http.post("/users/ana/revoke", json={"issued_before": round((now - 20) * 1000)})
        assert await refresh(2, iat=now - 30) == "token_revoked"
        assert await refresh(3, iat=None) == "token_revoked"
        assert await refresh(4, iat=now - 5) == "ok"
        async with httpx2.AsyncClient(base_url=here.url + "/api/v1", headers=service) as http:
            await http.post("/users/ana/revoke", json={"issued_before": round((now - 1) * 1000)})
        async with asyncio.timeout(2):
            await opened.wait_closed()
    assert opened.close_code == 4401


@pytest.mark.parametrize(
    ("scope", "status"),
    [("herenow:read", 200), ("service", 200), ("openid herenow:read", 200), ("read", 403), ("openid read admin", 403)],
)
async def test_scopes_of_an_issuer_s_token_need_the_prefix_herenow(place, scope, status):
    _, here = place
    headers = {"authorization": f"Bearer {token(sub='backend', scope=scope)}"}
    async with httpx2.AsyncClient(base_url=here.url + "/api/v1", headers=headers) as http:
        assert (await http.get("/users")).status_code == status
