"""A command imports only what it uses, so that commands and restarts are fast.

An environment variable makes Python log what a process imports.
"""

import os
import subprocess
import sys

import pytest
from tests.processes import SECRET, Server

ASKED = {"PYTHONPROFILEIMPORTTIME": "1"}

ELSEWHERE = {
    "alembic": "a schema that is not up to date",
    "asyncpg": "a ledger in PostgreSQL",
    "cryptography": "public keys of an issuer",
    "hiredis": "an engine on Redis",
    "httpx2": "keys by an address, relations from an application, top and doctor",
    "jwt": "public keys of an issuer",
    "rich.console": "config, import and doctor; a mere try, as structlog's, is written down too",
    "sqlalchemy.dialects.postgresql": "a ledger in PostgreSQL",
    "websockets": "the other implementation of WebSocket",
}
"""Heavy modules that a node with a secret on memory:// and SQLite does not need."""

OF_A_NODE = {"picows", "prometheus_client", "sqlalchemy", "starlette", "structlog", "uvicorn", "uvloop"}


async def test_a_server_with_default_settings_imports_no_python_module_of_unused_features(tmp_path):
    server = Server(tmp_path, {})
    await (await server.start()).stop()  # creates the ledger
    server.environment = ASKED
    await (await server.start()).stop()
    imported = imported_by(server.told())
    assert imported >= OF_A_NODE, "or this test would say nothing"
    assert sorted(imported & ELSEWHERE.keys()) == []


@pytest.mark.parametrize("arguments", [["token", "ana"], ["--version"]])
def test_a_command_that_only_prints_does_not_import_the_server_code(tmp_path, arguments):
    run = subprocess.run(
        [sys.executable, "-m", "herenow.cli", *arguments],
        cwd=tmp_path,
        env={**os.environ, **ASKED, "HERENOW_SECRET": SECRET},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = imported_by(run.stderr)
    assert "click" in imported
    assert sorted(imported & (ELSEWHERE.keys() | OF_A_NODE)) == []


def imported_by(told: str) -> set[str]:
    """Dotted names, from lines like `import time: self [us] | cumulative | package`."""
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}
