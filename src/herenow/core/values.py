"""Small frozen values that are cheap to create.

A decision creates about ten. As frozen dataclasses, whose fields are assigned one by one in Python, they were a third of its
cost; msgspec creates, compares and copies them in C. They are never part of a cycle, so garbage collection skips them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Value(Struct, frozen=True, gc=False):
    """Derive from it with `frozen=True`. Fields may refer to other values only."""


__all__ = ["Value", "replace"]
