"""Detect that the file of a ledger was deleted or replaced while it is open.

SQLite goes on with the open file, which has no name any more: writes would be acknowledged and lost with the process, and
other processes would use another file. A new connection would create an empty file. So every read and write is refused
until the same file is back at its place. Writes check it, and the read of the change table, which every node repeats each
second; other reads use the result of the last check.

Another file cannot be adopted: the write-ahead log beside it belongs to the deleted one, and SQLite would apply it to any
file of that name. Overwriting the content of the file in place is not detected; only SQLite itself may write to it.
"""

from __future__ import annotations

from pathlib import Path

from herenow.errors import Unavailable

REMEDY = (
    "move the same file back; to go on with a copy, stop all herenow processes that use it, put the copy in its place, "
    "without files that end in -wal and -shm, and start them"
)


class FileWatch:
    def __init__(self, path: Path | None) -> None:
        """Watch the ledger's file at `path`. None: the ledger is in memory, and there is nothing to check."""
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._trouble: str | None = None
        """The error sentence of the last check; None if the file was in its place."""

    def begin(self) -> None:
        """Remember which file is at the path now, for later checks. Call it when the ledger has opened the file."""
        self._identity, self._trouble = self._found(), None

    def end(self) -> None:
        self._identity = None

    def check(self) -> None:
        """Check that the open file is still at its path. Raises `Unavailable` if another file, or none, is there."""
        if self._identity is None:
            return
        found = self._found()
        self._trouble = None
        if found != self._identity:
            how = "deleted or moved" if found is None else "replaced by another one"
            self._trouble = f"The database cannot be used: its file was {how} while herenow runs; {REMEDY}."
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise `Unavailable` if the last `check` did, without a new check."""
        if self._trouble is not None:
            raise Unavailable(self._trouble)

    def _found(self) -> tuple[int, int] | None:
        """Return device and inode of the file at the path; None if there is none, or an empty one. An empty file is no
        ledger: SQLite's header is written at creation."""
        try:
            found = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if found is None or found.st_size == 0 else (found.st_dev, found.st_ino)
