"""What a client raises.

HerenowError
├── ProtocolError    the server refused something; carries its public code
│   └── RestError    the same by REST, with the HTTP status
├── Unavailable      no connection, or no answer: try again
└── Closed           the connection has ended for good: signed out, or a token that is refused
"""

from __future__ import annotations

from herenow.errors import HerenowError, ProtocolError, Unavailable

__all__ = ["Closed", "HerenowError", "ProtocolError", "RestError", "Unavailable"]


class Closed(HerenowError):  # noqa: N818 - reads as what it is
    """`code` is the close code: 4401 the token, 4409 signed out, 4400 malformed, 1000 `bye`."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"the connection was closed for good: {self.code} {self.reason}".rstrip()


class RestError(ProtocolError):
    def __init__(self, code: str, message: str, status: int, retry_after: float | None) -> None:
        super().__init__(code, message)
        self.status = status
        self.retry_after = retry_after
        """Seconds, where the server says so."""
