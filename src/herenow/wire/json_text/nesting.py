"""The maximum nesting of JSON: 64 levels, on every version of Python.

The interpreter's own limit differs between versions and with the depth of the call stack. This module imports no JSON
library, so that a command that only signs a token does not load one.
"""

from __future__ import annotations

import re

MAX_DEPTH = 64
"""Levels of arrays and objects. No frame and no body of a request needs more than four."""


def is_too_deep(payload: bytes) -> bool:
    """True if arrays and objects are nested deeper than `MAX_DEPTH`; brackets in strings do not count. Bytes that are not
    JSON may give either result; a parser refuses them. Only payloads with more than `MAX_DEPTH` brackets are scanned."""
    # 65 levels take 130 bytes.
    if len(payload) <= 2 * MAX_DEPTH or payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for byte in _brackets(payload):
        depth += 1 if byte == _OPENING else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _brackets(payload: bytes) -> bytes:
    """Return the brackets of a JSON text that are not in strings, with `{` and `}` replaced by `[` and `]`."""
    unescaped = payload.replace(b"\\\\", b"").replace(b'\\"', b"")  # a quote that is left begins or ends a string
    skeleton = unescaped.translate(_SQUARE, _NOT_STRUCTURE)
    # Two quotes side by side are a string without brackets, or the end of one string and the beginning of the next.
    return _STRING.sub(b"", skeleton.replace(b'""', b""))


_OPENING = ord("[")
_STRING = re.compile(rb'"[^"]*"?')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
