"""How log lines look. One line when something happens that an operator may ask about; beats are counted, not logged."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(form: str, level: str) -> None:
    """Our own lines and those of the libraries come out alike, on standard error."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        stamp,
    ]
    # Stacks are plain text in both forms: structlog's own console would print the local variables of every call in
    # them, and some of those are tokens and secrets.
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    rendering = [structlog.processors.format_exc_info, renderer] if form == "json" else [renderer]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
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
