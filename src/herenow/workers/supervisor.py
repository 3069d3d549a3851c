"""Keeps a number of worker processes alive on one address.

- One worker is started first, so that a wrong setting or an unreachable store is reported once; then the others.
- A worker that dies is restarted (see `restarts`). The others get its epochs and take over its users at once; nodes on
  other machines must wait until its lease expires.
- A worker that the system cannot start for lack of resources is retried until it starts.
- A worker whose event loop is blocked is killed.
- SIGHUP makes the workers read the secrets again; their connections stay.
- SIGUSR2 replaces the workers one by one with new processes that read the settings and the program again.

The supervisor does nothing else, so little can end it. If it is killed, its workers see their link close and shut down. If
one of its own tasks fails, it ends: otherwise it would silently keep fewer workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any

import structlog

from herenow.errors import ConfigurationError, HerenowError
from herenow.workers.restarts import Restarts
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

AWAY = os.EX_TEMPFAIL  # exit code of a worker that could not start because a service is unreachable
STARTING = 120.0  # seconds a worker may take to become ready: the ledger may have to be migrated, the store to settle
STOPPING = 30.0  # seconds a worker may take to shut down: more than the sum of a node's own time-outs
_EXPLAINED = (1, 2, AWAY)  # exit codes of a worker that has printed the reason
CHECK_EVERY = 1.0  # seconds between two checks for workers without heartbeats
ANSWER = 1.0  # seconds a worker has to send its report

log = structlog.get_logger(__name__)


class GivenUp(HerenowError):  # noqa: N818 - reads as what it is
    """A worker does not stay alive, or the supervisor itself failed."""


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        *,
        workers: int,
        address: tuple[str, int],
        hung_after: float,
        on_ready: Callable[[], None],
        make_restarts: Callable[[], Restarts] = Restarts,
    ) -> None:
        """Prepare to supervise this number of workers. `command` starts one; the file descriptor of its link is
        appended. `hung_after`: seconds without a heartbeat after which a worker is killed. `on_ready` is called once,
        when all workers are ready."""
        self._command = tuple(command)
        self._address = address
        self._hung_after = hung_after
        self._on_ready = on_ready
        self._slots = [_Slot(number, make_restarts()) for number in range(1, workers + 1)]
        self._workers: set[_Worker] = set()
        self._unhandled_epochs: list[str] = []
        self._numbers = count(1)
        self._requests: dict[int, _ReportRequest] = {}
        self._stop = asyncio.Event()
        self._replace_requested = asyncio.Event()
        self._failure: HerenowError | None = None

    def stop(self) -> None:
        """Make `run` shut down all workers and end (SIGTERM, SIGINT)."""
        self._stop.set()

    def reload_all(self) -> None:
        """Make all workers read the secrets again (SIGHUP)."""
        log.info("workers.reload")
        for worker in self._workers:
            worker.link.send(Reload())

    def replace_all(self) -> None:
        """Replace the workers one by one with new processes (SIGUSR2)."""
        self._replace_requested.set()

    async def run(self) -> int:
        """Start the workers, keep them running until `stop`, and return the exit code. Raises `GivenUp` or
        `ConfigurationError` when workers keep dying."""
        self._handle_signals()
        try:
            code = await self._start_first()
            if code is None:
                await self._supervise()
        finally:
            orderly = await self._end_all()
        if self._failure is not None:
            raise self._failure
        return code if code is not None else int(not orderly)

    # Start

    async def _start_first(self) -> int | None:
        """Start the first worker and wait until it is ready. Returns None when it is, or when `stop` was called;
        otherwise the exit code with which the supervisor must end."""
        slot = self._slots[0]
        try:
            slot.worker = worker = await self._start(slot)
        except OSError as error:
            raise GivenUp(f"Worker 1 could not be started: {error}.") from None
        await self._wait_any(worker.ready.wait(), worker.ended.wait(), self._stop.wait())
        if not worker.ended.is_set() or self._stop.is_set():
            return None
        if worker.code in _EXPLAINED:
            return 1 if worker.code == AWAY else worker.code
        raise GivenUp(f"Worker 1 ended before it was ready, with {_describe_exit(worker.code)}.")

    async def _supervise(self) -> None:
        jobs = [
            *((self._keep_running(slot), f"worker {slot.number}") for slot in self._slots),
            (self._kill_hung_workers(), "look"),
            (self._replace_on_request(), "replace"),
            (self._announce(), "announce"),
        ]
        tasks = [self._task(work, name) for work, name in jobs]
        try:
            await self._stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _announce(self) -> None:
        for slot in self._slots:
            await slot.ready.wait()
        try:
            self._on_ready()
        except OSError as error:  # standard output is closed: no reason to end
            log.warning("workers.unannounced", error=str(error))

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """End the supervisor if this task of the supervisor failed; the system that runs it must restart it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("supervisor.failed", task=task.get_name(), exc_info=error)
            self._failure = self._failure or GivenUp(f"The supervisor failed ({task.get_name()}): {error!r}.")
            self._stop.set()

    # One worker

    async def _keep_running(self, slot: _Slot) -> None:
        while True:
            worker = slot.worker
            if worker is None:
                worker = await self._start_with_retries(slot)
                if slot.worker is not None:  # a replacement was faster
                    worker.kill()
                    continue
                slot.worker = worker
            await worker.ended.wait()
            if slot.worker is not worker:
                continue  # it was replaced
            slot.worker = None
            pause = self._pause(slot, worker)
            if pause is None:
                self._give_up(slot, worker)
                return
            slot.restarted += 1
            log.warning("worker.ended", worker=slot.number, code=worker.code, again_in=pause)
            await asyncio.sleep(pause)

    def _pause(self, slot: _Slot, worker: _Worker) -> float | None:
        if worker.code == AWAY and any(other.ready.is_set() for other in self._workers):
            return slot.restarts.pause_while_away()
        return slot.restarts.pause_after(worker.lived)

    def _give_up(self, slot: _Slot, worker: _Worker) -> None:
        sentence = (
            f"Worker {slot.number} ended at once, {slot.restarts.in_a_row} times in a row, the last time with "
            f"{_describe_exit(worker.code)}: the log lines before this say why."
        )
        self._failure = (ConfigurationError if worker.code == 2 else GivenUp)(sentence)
        self._stop.set()

    async def _start_with_retries(self, slot: _Slot) -> _Worker:
        pauses = slot.restarts.pauses_between_tries()
        while True:
            try:
                return await self._start(slot)
            except OSError as error:
                pause = next(pauses)
                log.error("worker.not_started", worker=slot.number, error=str(error), again_in=pause)
            await asyncio.sleep(pause)

    async def _start(self, slot: _Slot) -> _Worker:
        """Start a worker process for this slot, and its link. Raises `OSError` when no descriptor, memory or process is
        left, or the program does not exist."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C in a terminal goes to the supervisor only, which forwards it
                )
            except BaseException:
                ours.close()
                raise
        try:
            link = await Link.over(ours)
        except BaseException:
            ours.close()
            process.kill()
            raise
        worker = _Worker(slot, process, link)
        worker.link.send(Place(slot.number, len(self._slots), *self._address))
        self._workers.add(worker)
        worker.handler = self._task(self._handle_worker(worker), "attend")
        return worker

    async def _handle_worker(self, worker: _Worker) -> None:
        """Handle all messages of a worker until its link closes, including those it sent before it died, and then its
        end."""
        try:
            async for message in worker.link.messages():
                self._on_message(worker, message)
        finally:
            worker.link.close()  # if a handler failed: the worker shuts down when its link closes
            await self._ended(worker)

    async def _ended(self, worker: _Worker) -> None:
        worker.code = await worker.process.wait()
        worker.lived = worker.age
        self._workers.discard(worker)
        self._unhandled_epochs += worker.epochs
        self._announce_dead()
        worker.ended.set()

    def _on_message(self, worker: _Worker, message: Message) -> None:
        worker.received_at = asyncio.get_running_loop().time()
        match message:
            case Epoch(epoch):
                worker.epochs.append(epoch)
            case Ready():
                worker.ready.set()
                worker.slot.ready.set()
                self._announce_dead()
            case Buried(epochs):
                self._unhandled_epochs = [epoch for epoch in self._unhandled_epochs if epoch not in epochs]
            case Question(number):
                self._collect_reports(worker, number)
            case Report(number, body):
                request = self._requests.get(number)
                if request is not None:
                    request.take(worker, body)
            case Alive() | _:
                pass

    def _announce_dead(self) -> None:
        """Send the epochs of dead workers to all ready workers, which agree on one of them to handle each epoch.
        Repeated whenever a worker ends or becomes ready, until one confirms: the receivers may be dead too."""
        if self._unhandled_epochs:
            for worker in self._workers:
                if worker.ready.is_set():
                    worker.link.send(Dead(self._unhandled_epochs))

    # Reports

    def _collect_reports(self, asker: _Worker, asked: int) -> None:
        number = next(self._numbers)
        self._requests[number] = request = _ReportRequest(
            [slot.worker for slot in self._slots if slot.worker is not None]
        )

        def answer() -> None:
            if self._requests.pop(number, None) is not None:
                timer.cancel()
                reports = [Told(s.number, s.restarted, request.bodies.get(s.worker)) for s in self._slots]
                asker.link.send(Answer(asked, reports))

        timer = asyncio.get_running_loop().call_later(ANSWER, answer)
        request.on_all = answer
        for worker in tuple(request.missing):
            worker.link.send(Question(number))

    # Replacement

    async def _replace_on_request(self) -> None:
        while True:
            await self._replace_requested.wait()
            self._replace_requested.clear()
            log.info("workers.replace")
            for slot in self._slots:
                if not await self._replace(slot):
                    log.error("workers.stay", worker=slot.number)
                    break
            else:
                log.info("workers.replaced")

    async def _replace(self, slot: _Slot) -> bool:
        """Replace the worker process of this slot. The new one starts before the old one ends, so that the address
        always accepts connections. Returns False if the new process does not become ready; the old one then stays."""
        old = slot.worker
        new = await self._start_with_retries(slot)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTING):
                await self._wait_any(new.ready.wait(), new.ended.wait())
        if new.ended.is_set() or not new.ready.is_set():
            new.kill()
            return False
        if old is None or slot.worker is not old:
            old = slot.worker  # the old one died meanwhile and was restarted
        slot.worker = new
        if old is not None:
            old.link.send(Leave())
            await self._wait_ended([old])
        return True

    # End

    async def _kill_hung_workers(self) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while True:
            await asyncio.sleep(CHECK_EVERY)
            now = loop.time()
            blocked = now - checked_at > 3 * CHECK_EVERY
            checked_at = now
            for worker in tuple(self._workers):
                if blocked:  # this process was blocked: heartbeats may be unread
                    worker.received_at = None if worker.received_at is None else now
                elif worker.silent_for > (STARTING if worker.received_at is None else self._hung_after):
                    log.error("worker.hung", worker=worker.slot.number, seconds=round(worker.silent_for))
                    worker.kill()

    async def _end_all(self) -> bool:
        """Shut down all workers at once, and wait until they have ended. Returns True if all of them ended as they
        should."""
        workers = tuple(self._workers)
        for worker in workers:
            worker.signal(signal.SIGTERM)
        await self._wait_ended(workers)
        return all(worker.ended_in_order for worker in workers)

    async def _wait_ended(self, workers: Sequence[_Worker]) -> None:
        """Wait for the workers to end; kill those that take longer than `STOPPING`."""
        try:
            async with asyncio.timeout(STOPPING):
                for worker in workers:
                    await worker.ended.wait()
        except TimeoutError:
            for worker in workers:
                if not worker.ended.is_set():
                    log.error("worker.stuck", worker=worker.slot.number)
                    worker.kill()
            for worker in workers:
                await worker.ended.wait()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self.stop)
        # With a terminal, SIGHUP means that the terminal was closed.
        loop.add_signal_handler(signal.SIGHUP, self.stop if os.isatty(0) else self.reload_all)
        loop.add_signal_handler(signal.SIGUSR2, self.replace_all)

    async def _wait_any(self, *waits: Coroutine[Any, Any, object]) -> None:
        tasks = [asyncio.get_running_loop().create_task(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class _Slot:
    """One of the configured workers, over all processes that run it."""

    def __init__(self, number: int, restarts: Restarts) -> None:
        self.number = number
        self.restarts = restarts
        self.restarted = 0
        self.worker: _Worker | None = None
        self.ready = asyncio.Event()
        """Set once any process of this slot has been ready."""


class _Worker:
    def __init__(self, slot: _Slot, process: asyncio.subprocess.Process, link: Link) -> None:
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self.slot = slot
        self.process = process
        self.link = link
        self.epochs: list[str] = []
        self.received_at: float | None = None
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.code: int | None = None
        self.lived = 0.0
        self.handler: asyncio.Task[None] | None = None

    @property
    def age(self) -> float:
        return self._loop.time() - self._started_at

    @property
    def silent_for(self) -> float:
        """Seconds since the last message of this worker, or since its start if it has sent none."""
        return self._loop.time() - (self._started_at if self.received_at is None else self.received_at)

    @property
    def ended_in_order(self) -> bool:
        """True if the worker ended as it should: with exit code 0, or by SIGTERM before it was ready, because its
        signal handler may not have been installed."""
        return self.code == 0 or (self.code == -signal.SIGTERM and not self.ready.is_set())

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(which)


class _ReportRequest:
    """The reports in reply to one question. `on_all` is called when none is missing."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self.missing = set(workers)
        self.bodies: dict[_Worker | None, bytes] = {}
        self.on_all: Callable[[], None] = lambda: None

    def take(self, worker: _Worker, body: bytes) -> None:
        if worker in self.missing:
            self.missing.discard(worker)
            self.bodies[worker] = body
            if not self.missing:
                self.on_all()


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
