"""Faster imports for commands that run a node, where imports are a large part of the start time.

This changes global state of the process, so only programs may use it, not libraries.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Context manager in which imports are faster: without garbage collection, and structlog does not import rich."""
    # Objects that imports create live as long as the process: collecting garbage meanwhile only costs time.
    gc.disable()
    try:
        _structlog_without_rich()
        yield
    finally:
        gc.enable()


def _structlog_without_rich() -> None:
    """Import structlog so that it does not import rich, which it would use for tracebacks with local variables. We
    never use those, as they could log tokens and secrets. A module set to None in `sys.modules` cannot be imported."""
    if sys.modules.setdefault("rich", None) is None:  # type: ignore[arg-type] # typeshed knows only modules
        try:
            import structlog  # noqa: F401 - later imports find it loaded, without rich
        finally:
            del sys.modules["rich"]
