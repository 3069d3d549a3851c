"""The syntax of ids, checked once for everything that enters: frames, REST, tokens, imports.

Nothing is repaired: two spellings that look alike must not become one user, so an id that is not in NFC is refused instead
of normalised. Whether a user with that id exists is not known here.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeGuard

from herenow.errors import ProtocolError

MAX_BYTES = 128  # of UTF-8; from the protocol

# The common case: printable ASCII without space and comma.
_PLAIN = re.compile(r"[!-+\--~]{1,128}")

_PLAIN_LIST = re.compile(r"[!-+\--~]{1,128}(?:,[!-+\--~]{1,128})*")

# Control characters, lone surrogates, and the three kinds of separators (every Unicode whitespace that is
# not a control character is one of these). Format characters (Cf) are allowed: joiners are part of words.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zs", "Zl", "Zp"})


def parse_id(value: object) -> str:
    """Check an id and return it as a string; an integer becomes its decimal string. Raises `ProtocolError`
    (`invalid_id`) for anything else."""
    match value:
        case bool():
            raise _invalid("a boolean is not an id; use a string or an integer")
        case str():
            return _check(value)
        case int():
            return _check(_decimal(value))
        case _:
            raise _invalid("an id is a string or an integer")


def are_plain(ids: Sequence[object]) -> TypeGuard[Sequence[str]]:
    """True if all ids are strings of common ASCII characters, and therefore valid; one regular expression checks them
    all. If False, check each with `parse_id`."""
    try:
        joined = ",".join(ids)  # type: ignore[arg-type]  # checked by the except
    except TypeError:
        return False
    return _PLAIN_LIST.fullmatch(joined) is not None and joined.count(",") == len(ids) - 1


def _check(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    if not text:
        raise _invalid("an id is not empty")
    if len(text) > MAX_BYTES:
        raise _too_long()
    if "," in text:
        raise _invalid("an id contains no comma")
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in text):
        raise _invalid("an id contains no control character, whitespace or lone surrogate")
    if len(text.encode()) > MAX_BYTES:
        raise _too_long()
    if not unicodedata.is_normalized("NFC", text):
        raise _invalid("an id is in Unicode normalisation form NFC")
    return text


def _decimal(number: int) -> str:
    # str() of an enormous integer is slow, and refused by Python itself beyond some thousand digits.
    if number.bit_length() > MAX_BYTES * 4:
        raise _too_long()
    return str(number)


def _too_long() -> ProtocolError:
    return _invalid(f"an id is at most {MAX_BYTES} bytes of UTF-8")


def _invalid(sentence: str) -> ProtocolError:
    return ProtocolError("invalid_id", sentence[0].upper() + sentence[1:] + ".")
