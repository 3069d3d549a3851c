"""Small frozen values, and new ones from old ones, fast.

Answers: how does a value that is made a million times a minute cost next to nothing? A decision makes about ten of them:
as frozen dataclasses, whose fields are assigned one by one in Python, they were a third of what it cost. These are made,
compared and copied in C. None of them can be part of a cycle, so the garbage collector need not know them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Value(Struct, frozen=True, gc=False):
    """To be derived from with `frozen=True`, for plain fields that refer to nothing but other values."""


__all__ = ["Value", "replace"]
