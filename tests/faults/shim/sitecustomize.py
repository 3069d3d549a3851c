"""Shifts the wall clock of a node under test by the number of seconds in a file, which may change at any time.

The monotonic clock is not shifted, as on a real machine.
"""

import mmap
import os
import struct
import time

_path = os.environ.get("FAULTS_CLOCK")
if _path:
    with open(_path, "rb") as _file:  # noqa: PTH123 - as little as possible is imported
        _offset = mmap.mmap(_file.fileno(), 8, prot=mmap.PROT_READ)
    _time, _time_ns = time.time, time.time_ns

    def _off() -> float:
        seconds: float = struct.unpack("d", _offset[:8])[0]
        return seconds

    time.time = lambda: _time() + _off()
    time.time_ns = lambda: _time_ns() + round(_off() * 1e9)
