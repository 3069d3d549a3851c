"""A lock that lets only one process with the memory engine use a ledger file.

At start, a process closes all earlier runs: it stores a last seen for their users and deletes their marks. If such a run
were still alive, its users would get a last seen while they are online, and none when it is killed. The system releases the
lock when the process ends for any reason. It is a file of its own: closing any descriptor of the ledger file would drop
SQLite's locks on it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from herenow.errors import ConfigurationError

FILE_MODE = 0o660
"""Mode of the files of a ledger, less the umask: never for other users of the machine."""


class SqliteProcessLock:
    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._lock: IO[bytes] | None = None

    def begin(self) -> None:
        """Lock the ledger file, so that no other process with the memory engine can use it. Raises `ConfigurationError`
        if another process has the lock, or if the lock file cannot be written."""
        if self._lock is not None:
            return
        try:
            path = self._ledger.with_name(self._ledger.name + "-run")
            lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE), "ab")
        except OSError as error:
            raise ConfigurationError(
                f"The database {self._ledger} needs a lock file beside it, which cannot be written ({error.strerror})."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ConfigurationError(
                f"The database {self._ledger} is in use by another herenow serve with the engine memory://: "
                "stop that one, or name another database."
            ) from None
        self._lock = lock

    def end(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
