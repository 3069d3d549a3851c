"""A worker's side of the link to its supervisor. The worker ends on request, and when its supervisor has ended.

It does not know what a worker does: epochs are opaque names, and a report is opaque bytes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import structlog

from herenow.errors import ConfigurationError, Unavailable
from herenow.workers.worker_link import (
    Alive,
    Answer,
    Buried,
    Dead,
    Epoch,
    Leave,
    Link,
    Message,
    Place,
    Question,
    Ready,
    Reload,
    Report,
    Told,
)

HEARTBEAT_EVERY = 1.0  # seconds between two heartbeats
REPORT_TIMEOUT = 3.0  # seconds to wait for the reports of all workers

log = structlog.get_logger(__name__)


class Worker:
    def __init__(self, link: Link, place: Place, stop: Callable[[], None]) -> None:
        self.place = place
        self.leaving = False
        """True when this process is being replaced: it must not accept new connections."""
        self.reload = asyncio.Event()
        """Set when the supervisor asks to reload, also before this process is ready."""
        self.on_dead: Callable[[Sequence[str]], Awaitable[None]] | None = None
        self.report: Callable[[], bytes] | None = None
        self._link = link
        self._stop = stop
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[list[Told]]] = {}
        self._tasks = {
            asyncio.get_running_loop().create_task(work, name=name)
            for work, name in ((self._listen(), "supervisor"), (self._send_heartbeats(), "alive"))
        }

    @classmethod
    async def join(cls, descriptor: int, stop: Callable[[], None]) -> Worker:
        """Connect to the supervisor over an inherited file descriptor, and wait for the message with our number and
        address (`Place`). `stop` is called when this process is to end. Raises `ConfigurationError` for a bad
        descriptor, `Unavailable` if the supervisor has ended."""
        try:
            link = await Link.over(socket.socket(fileno=descriptor))
        except (OSError, ValueError):
            raise ConfigurationError("--link is for workers, which a supervisor starts: leave it out.") from None
        async for message in link.messages():
            if isinstance(message, Place):
                return cls(link, message, stop)
        raise Unavailable("the supervisor has ended")

    def use(self, epoch: str) -> None:
        self._link.send(Epoch(epoch))

    def ready(self) -> None:
        self._link.send(Ready())

    async def told(self) -> list[Told]:
        """Request the reports of all workers, including this one, from the supervisor. Raises `Unavailable` if it does
        not answer."""
        number = next(self._numbers)
        answer: asyncio.Future[list[Told]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._link.send(Question(number))
        try:
            async with asyncio.timeout(REPORT_TIMEOUT):
                return await answer
        except TimeoutError:
            raise Unavailable("The supervisor does not answer.") from None
        finally:
            del self._asked[number]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._link.close()

    async def _send_heartbeats(self) -> None:
        while True:
            self._link.send(Alive())
            await asyncio.sleep(HEARTBEAT_EVERY)

    async def _listen(self) -> None:
        async for message in self._link.messages():
            self._on_message(message)
        log.warning("supervisor.gone")
        self._stop()

    def _on_message(self, message: Message) -> None:
        match message:
            case Leave():
                self.leaving = True
                self._stop()
            case Reload():
                self.reload.set()
            case Dead(epochs) if self.on_dead is not None:
                task = asyncio.get_running_loop().create_task(self._handle_dead(self.on_dead, epochs), name="bury")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Question(number) if self.report is not None:
                self._link.send(Report(number, self.report()))
            case Answer(number, told):
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(told)
            case _:
                pass

    async def _handle_dead(self, bury: Callable[[Sequence[str]], Awaitable[None]], epochs: list[str]) -> None:
        try:
            await bury(epochs)
        except Exception as error:
            log.error("bury.failed", error=repr(error), exc_info=True)
        self._link.send(Buried(epochs))
