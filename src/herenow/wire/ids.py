"""What may be an id, asked once for everything that enters: frames, REST, tokens, imports.

The question is only whether a value can name a user, device or room, and as which string. Whether such a
user exists is not known here. Nothing is repaired: two spellings that look alike must not silently become
one person, so an id that is not in NFC is refused rather than normalised.

A change of the id syntax in the protocol is the only reason to change this module.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeGuard

from herenow.errors import ProtocolError

MAX_BYTES = 128  # of UTF-8; from the protocol

# The common case in one look: printable ASCII without space and comma.
_PLAIN = re.compile(r"[!-+\--~]{1,128}")

_PLAIN_LIST = re.compile(r"[!-+\--~]{1,128}(?:,[!-+\--~]{1,128})*")

# Control characters, lone surrogates, and the three kinds of separators (every Unicode whitespace that is
# not a control character is one of these). Format characters (Cf) are allowed: joiners are part of words.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zs", "Zl", "Zp"})


def parse_id(value: object) -> str:
    """The id as a string; an integer becomes its decimal string.

    Raises `ProtocolError` with code `invalid_id` for anything else.
    """
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
    """Whether all of these are ids of the common kind, in one look: False says nothing, ask `parse_id` then."""
    try:
        joined = ",".join(ids)  # type: ignore[arg-type]  # that is what we ask
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
