"""Whether to reconnect after a close, and how long to wait. Pure; tested by `spec/vectors/backoff.json` and `closes.json`.

Full jitter: a random delay below a bound that doubles, so that clients that lost the same node do not reconnect at the
same moment. A wait that the server requests is added. The floor prevents a busy loop when the random delay is near zero.
"""

from __future__ import annotations

import re
from enum import Enum

FIRST = 2_000  # ms: the first bound
LAST = 30_000  # ms: the largest bound
TOKEN_FIRST = 1_000  # ms: the delay after the first failed token request
FLOOR = 100  # ms: the shortest delay
SLOWLY = 4  # failures from which on the bound is LAST
LONGEST = 3_600_000  # ms: the longest wait that a server may request
REFUSALS = 3
"""Refused tokens in a row after which the client stops trying."""


class Verdict(Enum):
    RETRY = "retry"
    SLOWLY = "slowly"
    """Retry with the largest bound, as after many failures."""
    TOKEN = "token"  # noqa: S105 - a word, not a secret
    """Retry with another token than the refused one."""
    STOP = "stop"
    """Do not reconnect automatically."""


_VERDICTS = {
    1000: Verdict.STOP,
    4400: Verdict.STOP,
    4401: Verdict.TOKEN,
    4403: Verdict.STOP,
    4409: Verdict.STOP,
    4429: Verdict.SLOWLY,
}
_RETRY_AFTER = re.compile(r"retry_after_ms=([0-9]+)")


def delay(failures: int, random: float, retry_after: int = 0) -> int:
    """Milliseconds to wait before the next attempt to connect, after `failures` failed ones. `random` is in [0, 1);
    `retry_after`: milliseconds that the server asks to wait, which are added."""
    bound = LAST if failures >= SLOWLY else FIRST * 2**failures
    return max(FLOOR, retry_after + int(random * bound))


def token_delay(failures: int) -> int:
    """Milliseconds to wait before the next token request, after `failures` (at least 1) failed ones in a row."""
    return min(LAST, TOKEN_FIRST << min(failures - 1, 16))


def after_close(code: int | None) -> Verdict:
    """Decide how to react to the close code of a connection. `code` is None if there was no close frame or no
    connection."""
    return Verdict.RETRY if code is None else _VERDICTS.get(code, Verdict.RETRY)


def counted(failures: int, verdict: Verdict) -> int:
    return max(failures, SLOWLY) if verdict is Verdict.SLOWLY else failures


def retry_after(reason: str) -> int:
    """Milliseconds to wait, as requested in a close reason (`retry_after_ms=…`), at most `LONGEST`; 0 if absent."""
    found = _RETRY_AFTER.search(reason)
    return 0 if found is None else min(int(found[1]), LONGEST)
