"""Does another process run on this ledger file? An embedded run must be the only one.

Whoever starts takes it that earlier runs are over and writes down when their users were last seen. Were one of them
alive, its users would be given a last seen while they are here, and none when it is killed. So the run holds a lock
beside the ledger, which the system takes from a process that ends, however it ends.

Not on the ledger itself: closing any descriptor of that file would drop the locks SQLite has on it.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from herenow.errors import ConfigurationError


class SqliteProcessLock:
    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._lock: IO[bytes] | None = None

    def begin(self) -> None:
        """Raises `ConfigurationError` where another run is under way."""
        if self._lock is not None:
            return
        try:
            lock = self._ledger.with_name(self._ledger.name + "-run").open("ab")
        except OSError as error:
            raise ConfigurationError(
                f"The ledger {self._ledger} needs a lock file beside it, which cannot be written ({error.strerror})."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ConfigurationError(
                f"The ledger {self._ledger} is in use by another herenow serve with the engine memory://: "
                "stop that one, or name another ledger."
            ) from None
        self._lock = lock

    def end(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
