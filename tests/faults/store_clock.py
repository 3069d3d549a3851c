"""A clock for the store's server that can be stepped while it runs: `shim/clock.c`, preloaded into the server.

This needs a C compiler for a second. `./dev` fetches one in continuous integration; without one the store keeps the
true time, and the bench reports that this fault is left out.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "shim" / "clock.c"


class StoreClock:
    def __init__(self, folder: Path) -> None:
        self._offset = folder / "store-clock"
        self._shim = folder / "clock.so"
        self._offset.write_bytes(struct.pack("q", 0))

    def before(self, binary: list[str]) -> list[str] | None:
        """Command line of the server with this clock; None without a compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        subprocess.run([compiler, "-shared", "-fPIC", "-O", "-o", self._shim, SOURCE], check=True)
        return ["env", f"LD_PRELOAD={self._shim}", f"FAULTS_STORE_CLOCK={self._offset}", *binary]

    def step(self, seconds: float) -> None:
        """Set the offset in seconds. Written in one call: the server may read it at any moment."""
        file = os.open(self._offset, os.O_WRONLY)
        try:
            os.pwrite(file, struct.pack("q", round(seconds * 1e9)), 0)
        finally:
            os.close(file)
