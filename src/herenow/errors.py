"""The families of failures, distinguished by the party that can act.

    HerenowError
    ├── ConfigurationError   the operator: fix a setting and start again (one sentence, with the value)
    ├── ProtocolError        the peer: it sent something wrong; carries a public code
    ├── Unavailable          no party: a service is unreachable and nothing happened; retry
    └── UnknownOutcome       no party: the call may or may not have happened; check before repeating

`Unavailable` and `UnknownOutcome` are siblings on purpose: code that catches the first to retry blindly must not catch the
second by accident. Adapters translate the errors of their drivers into these. HTTP status and close codes are in `wire`.
"""


class HerenowError(Exception):
    """Base of everything herenow raises on purpose."""


class ConfigurationError(HerenowError):
    """A setting is wrong. The message is one sentence naming the setting, the value and what is allowed."""


class ProtocolError(HerenowError):
    """The peer sent something wrong: a public `code`, which is never reused, and a sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Unavailable(HerenowError):  # noqa: N818 - reads as what it is
    """A service is unreachable and nothing happened: safe to retry."""


class UnknownOutcome(HerenowError):  # noqa: N818 - reads as what it is
    """A service did not answer in time: the call may have happened, or may still happen."""
