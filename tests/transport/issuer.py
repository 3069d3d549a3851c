"""A token issuer: keys of every kind, and a real HTTP server that publishes them or misbehaves."""

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from functools import cache

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ALGORITHMS = ("RS256", "ES256", "EdDSA")


@cache
def private_key(algorithm, name="one"):
    del name  # another name gives another key
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(65537, 2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()


def public_jwk(algorithm, name="one", **more):
    public, body = private_key(algorithm, name).public_key(), {}
    match algorithm:
        case "RS256":
            numbers = public.public_numbers()
            body = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        case "ES256":
            numbers = public.public_numbers()
            body = {"kty": "EC", "crv": "P-256", "x": number(numbers.x, 32), "y": number(numbers.y, 32)}
        case "EdDSA":
            body = {"kty": "OKP", "crv": "Ed25519", "x": text(public.public_bytes_raw())}
    return {**body, "kid": f"{algorithm}-{name}", "alg": algorithm, "use": "sig", **more}


def number(value, length=None):
    return text(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


def text(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def jwks(*keys):
    return json.dumps({"keys": list(keys)}).encode()


def signed(algorithm, name="one", *, kid="", now=None, headers=None, **claims):
    """`kid` "": the key's own; None: none."""
    now = time.time() if now is None else now
    claims = {"sub": "ana", "iat": now, "exp": now + 600, **claims}
    claims = {name: value for name, value in claims.items() if value is not None}
    named = {} if kid is None else {"kid": kid or f"{algorithm}-{name}"}
    return jwt.encode(claims, private_key(algorithm, name), algorithm, headers={**named, **(headers or {})})


class Issuer:
    """The answers of its address, and the number of requests."""

    def __init__(self):
        self.body = jwks(*map(public_jwk, ALGORITHMS))
        self.status = "200 OK"
        self.headers = {}
        self.delay = 0.0
        self.asked = 0
        self.url = ""

    def publishes(self, *keys):
        self.body = jwks(*keys)

    async def answer(self, reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            await asyncio.sleep(self.delay)
            headers = {"content-type": "application/json", "content-length": len(self.body), **self.headers}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {self.status}\r\n{head}\r\n".encode() + self.body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def issuing():
    issuer = Issuer()
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
    try:
        yield issuer
    finally:
        server.close()
