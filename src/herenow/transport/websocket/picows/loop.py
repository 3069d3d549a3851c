"""What does picows take for its event loop? One that gives it nothing to keep.

picows asks the loop for two futures per connection, and for a timer behind every error. On the futures wait those who open
a connection or await its end, which nobody does here, and they would be 288 bytes of each socket for as long as it lives;
the timers would end connections, which is ours to do (`picows_socket.Leash`). What else picows may want of a loop is the
reason to change this module; `picows_seam` finds out when the server starts.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast


class Settled:
    """A future for all: the handshake is complete when picows first asks, and who waits for an end is told otherwise."""

    __slots__ = ()

    def done(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def set_result(self, _result: object) -> None: ...
    def set_exception(self, _error: BaseException) -> None: ...


class Loop:
    __slots__ = ()

    def create_future(self) -> Settled:
        return _SETTLED

    def call_later(self, _seconds: float, *_callback: object) -> None: ...


_SETTLED = Settled()
_LOOP = cast("asyncio.AbstractEventLoop", Loop())  # as much of it as picows asks for


@contextmanager
def given_nothing_to_keep() -> Iterator[None]:
    """Whoever asks for the running loop in this block gets that one: for the constructor of picows' protocol alone."""
    running = asyncio.get_running_loop()
    asyncio._set_running_loop(_LOOP)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
