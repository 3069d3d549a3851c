"""How does an application know that a question comes from us? It is signed with a secret that both know.

The signature covers the time and the body, so that neither can be changed, and a question that somebody recorded is
worthless once its time is past. Reading the time is the caller's business.
"""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP = "Herenow-Timestamp"
"""Header: epoch seconds."""

SIGNATURE = "Herenow-Signature"
"""Header: `v1=` and the HMAC in hexadecimal."""


def signed(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that go with this body."""
    return {TIMESTAMP: str(timestamp), SIGNATURE: signature(secret, timestamp, body)}


def signature(secret: str, timestamp: int, body: bytes) -> str:
    message = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
