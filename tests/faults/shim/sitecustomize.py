"""For a node under test: its machine's clock is off by as many seconds as a file says, from one moment to the next.

Only the clock that tells the date moves; the monotonic one does not, as on a real machine.
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
