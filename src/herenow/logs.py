"""How log lines look. One line when something happens that an operator may ask about; beats are counted, not logged.

Logging never fails: a disk that is full takes a line from the log, and not a task from the node.
"""

from __future__ import annotations

import logging
import re
import sys
from contextlib import suppress
from typing import TextIO

import structlog


class Unfailing:
    """A stream to which one may always write. What it could not take is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a full disk, a pipe nobody reads; a stream that is closed
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def console(*, colors: bool) -> structlog.typing.Processor:
    """Lines for people. Without colours, structlog does only what is rare: ten thousand sockets that close at once are ten
    thousand lines, and its renderer takes 80 µs for each."""
    thorough = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
    if colors:
        return thorough

    def plain(logger: object, method: str, line: structlog.typing.EventDict) -> str:
        if not _WANT_CARE.isdisjoint(line):
            return thorough(logger, method, line)
        at, level, event = line.pop("timestamp"), line.pop("level"), str(line.pop("event"))
        if not line:
            return f"{at} [{level:<9}] {event}".rstrip(" ")
        said = " ".join([f"{name}={_shown(line[name])}" for name in sorted(line)])
        return f"{at} [{level:<9}] {event:<30} {said}"

    return plain


_WANT_CARE = frozenset(("exc_info", "exception", "stack", "logger", "logger_name"))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if _WANT_QUOTES.search(value) else value
    return repr(value)


_WANT_QUOTES = re.compile("[ \\t=\\r\\n\"']")


def configure_logging(form: str, level: str) -> None:
    """Our own lines and those of the libraries come out alike, on standard error."""
    stream = Unfailing(sys.stderr)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        stamp,
    ]
    # Stacks are plain text in both forms: structlog's own console would print the local variables of every call in
    # them, and some of those are tokens and secrets.
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if form == "json" else console(colors=sys.stderr.isatty())
    )
    rendering = [structlog.processors.format_exc_info, renderer] if form == "json" else [renderer]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(stream),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("uvicorn", "uvicorn.error", "picows", "alembic", "httpx2"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
