"""Log lines show where an error happened, and no secret."""

import json
import logging
import sys

import pytest
import structlog

from herenow.logs import SAMPLE, PlainLines, Sampled, configure_logging


@pytest.fixture(params=["console", "json"])
def form(request):
    """Logging configured as in a server; restored afterwards."""
    root, kept = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield request.param
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**kept)


def fail(token):
    raise RuntimeError("a mistake")


@pytest.mark.parametrize("logger", [structlog.get_logger, logging.getLogger], ids=["ours", "a library's"])
def test_a_logged_traceback_shows_no_values_of_local_variables(form, logger, capsys):
    configure_logging(form, "info")
    try:
        fail("-".join(("a", "token")))  # joined here, because the source line itself is in the traceback
    except RuntimeError:
        logger("herenow.test").error("it failed", exc_info=True)
    said = capsys.readouterr().err
    assert "RuntimeError: a mistake" in said
    assert "in fail" in said
    assert "a-token" not in said
    if form == "json":
        assert "in fail" in json.loads(said)["exception"]


def test_a_log_line_that_a_full_disk_refuses_is_lost_without_an_error(form, monkeypatch):
    full = open("/dev/full", "w", buffering=1)  # noqa: PTH123, SIM115 - closing it fails, as it must
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", full)
        configure_logging(form, "info")
        structlog.get_logger("ours").warning("a line")
        logging.getLogger("theirs").warning("another")
    with pytest.raises(OSError, match="No space left"):
        full.write("it is really full\n")
    with pytest.raises(OSError, match="No space left"):
        full.close()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"user": "ana", "device": "-"},
        {"reason": "it's over", "code": None, "at": 1.5},
        {"b": "", "a": "x=y", "c": "two words", "d": "tab\t", "e": "\r\n", "f": '"', "g": "é🎉"},
        {"exc_info": None, "user": "ana"},
        {"logger": "theirs", "user": "ana"},
        {"stack": "a stack"},
    ],
    ids=lambda said: "-".join(said) or "nothing",
)
@pytest.mark.parametrize("level", ["info", "warning", "critical"])
@pytest.mark.parametrize("event", ["connection.opened", "a sentence that is longer than its column is wide"])
def test_the_fast_formatter_of_log_lines_gives_the_same_text_as_structlogs_console_renderer(said, level, event):
    console = structlog.dev.ConsoleRenderer(colors=False)
    line = {"timestamp": "2026-11-16T10:00:00.000000Z", "level": level, "event": event, **said}
    assert PlainLines(console)(None, level, dict(line)) == console(None, level, dict(line))


@pytest.mark.parametrize("logger", [structlog.get_logger, logging.getLogger], ids=["ours", "a library's"])
@pytest.mark.parametrize(
    "character", ["\u202e", "\u2066", "\u200f", "\u2028", "\x85", "\x1b", "\r", "\x7f", "\ufeff", "\xad"]
)
def test_control_and_direction_characters_are_escaped_in_log_lines(form, logger, character, capsys):
    configure_logging(form, "info")
    logger("herenow.test").warning(f"before{character}after")
    structlog.get_logger("herenow.test").warning("event", user=f"ana{character}bob", text=f"a b{character}")
    said = capsys.readouterr().err
    assert character not in said
    assert said.count("after") == said.count("bob") == 1
    if form == "json":
        assert [json.loads(line) for line in said.splitlines()][1]["user"] == f"ana{character}bob"


def test_letters_of_any_language_stay_readable_in_console_log_lines(form, capsys):
    configure_logging(form, "info")
    structlog.get_logger("herenow.test").warning("event", user="zoë-李-משה")
    said = capsys.readouterr().err
    assert form == "json" or "zoë-李-משה" in said


def test_repeated_lines_of_a_library_are_omitted_and_counted():
    now, sampled = 100.0, Sampled()

    def logged(message, *values):
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, message, values, None)
        record.created = now
        return record.getMessage() if sampled.filter(record) else None

    lines = [logged("bad request of %s", number) for number in range(1000)]
    assert [line for line in lines if line] == [f"bad request of {number}" for number in range(SAMPLE)]
    assert logged("another") == "another"
    now += 10
    assert logged("bad request of %s", 1000) == f"bad request of 1000 ({1000 - SAMPLE} such lines were omitted)"
    assert logged("bad request of %s", 1001) == "bad request of 1001"


def test_a_configured_server_samples_the_lines_of_libraries(form, capsys):
    configure_logging(form, "info")
    for _ in range(1000):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert len(capsys.readouterr().err.splitlines()) == SAMPLE
