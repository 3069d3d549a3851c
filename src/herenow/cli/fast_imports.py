"""Faster imports for commands that run a node: much of a start is importing.

It changes how the whole process imports, which only a program of its own may do.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import the composition root within this."""
    # What modules are made of stays: the collector would walk it again and again and find nothing.
    gc.disable()
    try:
        _structlog_without_rich()
        yield
    finally:
        gc.enable()


def _structlog_without_rich() -> None:
    """If it can, structlog imports rich for tracebacks that show the local variables of every call: tokens and secrets are
    among them, so nobody here asks for one. A name that stands for None cannot be imported, as Python documents."""
    if sys.modules.setdefault("rich", None) is None:  # type: ignore[arg-type] # typeshed knows only modules
        try:
            import structlog  # noqa: F401 - from here on it is there, and knows no rich
        finally:
            del sys.modules["rich"]
