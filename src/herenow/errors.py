"""Which failures there are, so that every caller knows what to do about one.

There are three families, told apart by who can act:

    HerenowError
    ├── ConfigurationError   the operator: fix a setting, start again (one sentence, with the value)
    ├── ProtocolError        the peer: it sent something wrong; carries a public code
    ├── Unavailable          nobody: a service is out of reach, and nothing happened; retry
    └── UnknownOutcome       nobody: the call may or may not have happened; look before repeating

`Unavailable` and `UnknownOutcome` are siblings on purpose: whoever catches the first to retry blindly must
not catch the second by accident. Errors of drivers are translated into these at the adapter's edge.

This module does not know HTTP status or close codes; those belong to the wire. A new family is the only
reason to change it.
"""


class HerenowError(Exception):
    """Base of everything herenow raises on purpose."""


class ConfigurationError(HerenowError):
    """A setting is wrong. The message is one sentence naming the setting, the value and what is allowed."""


class ProtocolError(HerenowError):
    """The peer sent something wrong: a public `code`, never reused, and a sentence for a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Unavailable(HerenowError):  # noqa: N818 - reads as what it is
    """A service is out of reach and nothing happened: safe to retry."""


class UnknownOutcome(HerenowError):  # noqa: N818 - reads as what it is
    """A service did not answer in time: the call may have happened, now or later."""
