"""When to come back, and whether at all. Pure; the rules are rows in `spec/vectors/backoff.json` and `closes.json`.

Full jitter: a random moment below a bound that doubles, so that those who lost their node together do not return
together. A time that the server asks for comes before that. The floor keeps a lucky zero from being a busy loop.
"""

from __future__ import annotations

import re
from enum import Enum

FIRST = 2_000  # ms: the first bound
LAST = 30_000  # ms: the bound grows no further
FLOOR = 100  # ms
SLOWLY = 4  # doublings after which the bound is LAST
LONGEST = 3_600_000  # ms: what a server may ask for
REFUSALS = 3
"""Tokens refused one after the other: a fourth would be, too."""


class Verdict(Enum):
    RETRY = "retry"
    SLOWLY = "slowly"
    """As after many failures."""
    TOKEN = "token"  # noqa: S105 - a word, not a secret
    """With a token that is not the refused one."""
    STOP = "stop"
    """Not by itself."""


_VERDICTS = {1000: Verdict.STOP, 4400: Verdict.STOP, 4401: Verdict.TOKEN, 4409: Verdict.STOP, 4429: Verdict.SLOWLY}
_RETRY_AFTER = re.compile(r"retry_after_ms=([0-9]+)")


def delay(failures: int, random: float, retry_after: int = 0) -> int:
    """Milliseconds to wait before the try after `failures` of them; `random` is from [0, 1)."""
    bound = LAST if failures >= SLOWLY else FIRST * 2**failures
    return max(FLOOR, retry_after + int(random * bound))


def after_close(code: int | None) -> Verdict:
    """None: it ended without a close frame, or never began."""
    return Verdict.RETRY if code is None else _VERDICTS.get(code, Verdict.RETRY)


def counted(failures: int, verdict: Verdict) -> int:
    return max(failures, SLOWLY) if verdict is Verdict.SLOWLY else failures


def retry_after(reason: str) -> int:
    """Milliseconds that the reason of a close asks for; at most an hour."""
    found = _RETRY_AFTER.search(reason)
    return 0 if found is None else min(int(found[1]), LONGEST)
