"""The exceptions of the client.

HerenowError
├── ProtocolError    the server refused a request; carries its public code
│   └── RestError    the same over REST, with the HTTP status
├── Unavailable      no connection or no response: retry
└── Closed           the connection is closed and will not be reopened: signed out, or the token was refused
"""

from __future__ import annotations

from herenow.errors import HerenowError, ProtocolError, Unavailable

__all__ = ["Closed", "HerenowError", "ProtocolError", "RestError", "Unavailable"]


class Closed(HerenowError):  # noqa: N818 - reads as what it is
    """The connection is closed for good. `code` is the close code: 4401 token refused, 4403 service token, 4409 signed
    out, 4400 malformed frame, 1000 `bye`; None if there was no close frame. `reason` is `signed_out` if no user is signed
    in."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"the connection was closed for good: {self.code} {self.reason}".rstrip()


class RestError(ProtocolError):
    """The server refused a REST request. `code` is its public error code, `status` the HTTP status."""

    def __init__(self, code: str, message: str, status: int, retry_after: float | None) -> None:
        super().__init__(code, message)
        self.status = status
        self.retry_after = retry_after
        """Seconds to wait before a retry; None if the server sent none."""
