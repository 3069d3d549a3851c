"""Signs requests to the application with a shared secret (HMAC-SHA256).

The signature covers the time and the body: neither can be changed, and a recorded request is useless once its time is past.
"""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP = "Herenow-Timestamp"  # header: epoch seconds
SIGNATURE = "Herenow-Signature"  # header: `v1=` and the HMAC in hexadecimal


def signed(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the HTTP headers that sign `body`. `timestamp` is in epoch seconds."""
    return {TIMESTAMP: str(timestamp), SIGNATURE: signature(secret, timestamp, body)}


def signature(secret: str, timestamp: int, body: bytes) -> str:
    message = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
