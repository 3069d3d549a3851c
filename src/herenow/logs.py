"""The format of log lines. Logging never raises: if the disk is full, a line is lost, but no task of the node fails."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import suppress
from typing import TextIO

import structlog


class Unfailing:
    """A stream whose `write` never raises. Text that cannot be written is lost. Control characters are escaped, and those
    that change the direction of text or are invisible: a value in a line could show the reader another line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._escaped = _ESCAPED_ON_TERMINAL if stream.isatty() else _ESCAPED

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # full disk or broken pipe; closed stream
            self._stream.write(text if text.isascii() and text[:-1].isprintable() else self._escaped.sub(_escape, text))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


_INVISIBLE = (
    "\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
_INVISIBLE += "\U000e0000-\U000e007f"  # tags
_ESCAPED = re.compile(f"[{_INVISIBLE}\x1b]")
_ESCAPED_ON_TERMINAL = re.compile(f"[{_INVISIBLE}]|\x1b(?!\\[[0-9;]*m)")
"""On a terminal our lines have colours."""


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


SAMPLE = 10  # lines of one kind in `SAMPLE_SECONDS`
SAMPLE_SECONDS = 10.0
MAX_KINDS = 1_000


class Sampled(logging.Filter):
    """Limits the lines of libraries: `SAMPLE` of one kind (logger and text without arguments) in `SAMPLE_SECONDS`. The
    next line has the number of omitted ones. Without it, a peer that sends nonsense writes ten bytes of log for each
    byte of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """Kind → (begin of its interval, lines in it)."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = (record.name, str(record.msg)), record.created
        begin, lines = self._kinds.pop(kind, (now, 0))
        if not 0 <= now - begin < SAMPLE_SECONDS:
            if lines > SAMPLE:
                record.msg, record.args = f"{record.getMessage()} ({lines - SAMPLE} such lines were omitted)", ()
            begin, lines = now, 0
        self._kinds[kind] = (begin, lines + 1)
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return lines < SAMPLE


class PlainLines:
    """Renders lines like structlog's console without colours, in a quarter of the time: every connection logs two lines.
    Events with more than names and values, such as stack traces, are passed on to the console renderer."""

    def __init__(self, console: structlog.dev.ConsoleRenderer) -> None:
        self._console = console

    def __call__(self, logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict) -> str:
        if not (event.keys() >= _REQUIRED and event.keys().isdisjoint(_NOT_PLAIN)):
            return self._console(logger, name, event)
        at, level, what = event.pop("timestamp"), event.pop("level"), event.pop("event")
        fields = " ".join([f"{key}={_formatted(value)}" for key, value in sorted(event.items())])
        return f"{at} [{level:<9}] {what!s:<30} {fields}".rstrip(" ")


_REQUIRED = {"timestamp", "level", "event"}
_NOT_PLAIN = {"stack", "exception", "exc_info", "logger", "logger_name"}


def _formatted(value: object) -> str:
    if isinstance(value, str) and not _QUOTED.search(value):
        return value
    return repr(value)


_QUOTED = re.compile(r"[ \t=\r\n\"']")


def configure_logging(form: str, level: str) -> None:
    """Send our log lines and those of libraries to standard error, in one format. `form`: `console` or `json`."""
    stream = Unfailing(sys.stderr)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        stamp,
    ]
    # Plain stack traces: structlog's default would print local variables, and some of them are tokens and secrets.
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    renderer: structlog.typing.Processor = console if sys.stderr.isatty() else PlainLines(console)
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
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
    handler.addFilter(Sampled())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("uvicorn", "uvicorn.error", "picows", "alembic", "httpx2"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
