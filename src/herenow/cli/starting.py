"""How does a process that stays for long come to its node quickly? Much of a start is importing.

Only for commands that run a node: it changes how the whole process imports, which is nobody's business but a program's own.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quickly() -> Iterator[None]:
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
