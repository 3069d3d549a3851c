"""Tokens (minting, verifying), the public keys of an issuer, and the check of a browser's origin.

Importing this package loads neither cryptography nor an HTTP client; `key_source` and `Auth` load them if they are needed.
"""

from herenow.transport.auth.auth import SUBPROTOCOL, Auth, find_token
from herenow.transport.auth.issuer import describe_keys, key_source
from herenow.transport.auth.origins import is_allowed
from herenow.transport.auth.public_keys import BadKeys, KeysPending
from herenow.transport.auth.tokens import ANY, Claims, Expected, mint, verify

__all__ = [
    "ANY",
    "SUBPROTOCOL",
    "Auth",
    "BadKeys",
    "Claims",
    "Expected",
    "KeysPending",
    "describe_keys",
    "find_token",
    "is_allowed",
    "key_source",
    "mint",
    "verify",
]
