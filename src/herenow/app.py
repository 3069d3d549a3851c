"""The composition root: builds a running server from settings.

settings ─▶ ledger, engine, relations ─▶ Node ─▶ WebSocketServer ┐
                               └────▶ api (REST, pages) ──┴─▶ one port

A reaper is a node that accepts no clients: everything but the last column.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog
import uvloop

from herenow.announcement import announcement, reaper_announcement
from herenow.api.application import make_app
from herenow.api.ops.stats_collect import encode_report
from herenow.demo import Demo
from herenow.engines import make_engine
from herenow.errors import ConfigurationError, HerenowError
from herenow.kit.clock import NodeClock
from herenow.ledgers import open_ledger
from herenow.logs import configure_logging
from herenow.node import Node, Reaping, make_context
from herenow.ports import Engine, SourceHealth
from herenow.relations import SourceOptions, open_relations
from herenow.secret import resolve_secrets
from herenow.settings import Settings, agreed_terms, fingerprint
from herenow.transport.auth import Auth, Expected, key_source
from herenow.transport.http import Listener
from herenow.transport.server import WebSocketServer
from herenow.transport.websocket import Sockets, descriptors_allowed, sockets_within
from herenow.workers.worker import Worker

log = structlog.get_logger(__name__)

SWITCH = 0.0005
"""Seconds after which a ledger thread yields the interpreter to the event loop; Python's 5 ms would delay a fan-out."""


def serve(settings: Settings, *, demo: bool = False) -> int:
    """Run a server until a signal stops it, and return the exit code. `demo`: with the users and the page of the demo."""
    _prepare_process(settings)
    with Listener(settings) as listener:
        uvloop.run(_serve(settings, listener, demo=demo))
    return 0


def work(settings: Settings, link: int) -> int:
    """Run a server as one of several workers, until a signal or its supervisor stops it, and return the exit code.
    `link`: file descriptor of the connection to the supervisor."""
    _prepare_process(settings)
    uvloop.run(_work(settings, link))
    return 0


def _prepare_process(settings: Settings) -> None:
    configure_logging(settings.log_format, settings.log_level)
    _tune_garbage_collector()
    sys.setswitchinterval(SWITCH)


def reap(settings: Settings, reaping: Reaping) -> int:
    """Run a reaper until a signal stops it, and return the exit code. A reaper accepts no clients: it only expires
    users whose reconnect window, mode or custom status is over."""
    configure_logging(settings.log_format, settings.log_level)
    uvloop.run(_reap(settings, reaping))
    return 0


async def _reap(settings: Settings, reaping: Reaping) -> None:
    stop = _stop_signal()
    reload = _reload_signal(stop)
    secrets = resolve_secrets(settings)
    ledger = open_ledger(settings.ledger)
    await ledger.open()
    try:
        node = Node(make_context(engine_of(settings), ledger, settings, reaping=reaping))
        await node.start(agreed_terms(settings, ledger.id, secrets))
        _print(reaper_announcement(settings, reaping.shards))
        async with _reloading_secrets(reload, settings, node, ledger.id):
            await stop.wait()
        await node.stop()
    finally:
        await ledger.close()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    return stop


def _reload_signal(stop: asyncio.Event) -> asyncio.Event:
    """Return an event that SIGHUP sets. With a terminal, SIGHUP means that the terminal was closed, and sets `stop`."""
    reload = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.set if os.isatty(0) else reload.set)
    return reload


async def _serve(settings: Settings, listener: Listener, *, demo: bool) -> None:
    stop = _stop_signal()
    async with running(settings, listener, demo=demo, reload=_reload_signal(stop)) as served:
        for line in announcement(settings, listener.url):
            _print(line)
        if served.guests is not None:
            _print(served.guests.invitation())
        await _until(stop, served.serving)


async def _work(settings: Settings, link: int) -> None:
    stop = _stop_signal()
    worker = await Worker.join(link, stop.set)
    structlog.contextvars.bind_contextvars(worker=worker.place.number)
    try:
        with Listener(settings, shared=(worker.place.host, worker.place.port)) as listener:
            async with running(settings, listener, worker=worker, reload=worker.reload) as served:
                worker.ready()
                await _until(stop, served.serving)
    finally:
        await worker.end()


async def _until(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stopped = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait((stopped, serving), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


@dataclass(frozen=True, slots=True)
class Served:
    serving: asyncio.Task[None]
    guests: Demo | None


@asynccontextmanager
async def running(
    settings: Settings,
    listener: Listener,
    *,
    demo: bool = False,
    worker: Worker | None = None,
    reload: asyncio.Event | None = None,
) -> AsyncIterator[Served]:
    """Start a node that serves clients on this listener, for the duration of the context; then drain and stop it.
    `worker`: the link to the supervisor, if this process is one of several workers. `reload`: set to read the secrets
    again."""
    secrets = resolve_secrets(settings)
    if demo and not secrets:
        raise ConfigurationError("--demo signs its tokens with a secret: configure one in addition to the JWKS.")
    ledger = open_ledger(settings.ledger)
    await ledger.open()
    try:
        clock, health = NodeClock(), SourceHealth()
        async with open_relations(SourceOptions(settings, ledger, clock.now, health)) as relations:
            node = Node(
                make_context(engine_of(settings), ledger, settings, clock=clock),
                relations=relations,
                relations_health=health,
                on_epoch=(lambda epoch: None) if worker is None else worker.use,
            )
            auth = Auth(
                secrets,
                node.context.clock,
                settings.token_max_ttl,
                revocations=node.admin.revocations,
                source=key_source(settings.jwks_url, settings.jwks_file),
                expected=expected(settings),
            )
            sockets = Sockets(sockets_within(descriptors_allowed()))
            websockets = WebSocketServer(node, auth, sockets, settings)
            guests = Demo(node, secrets[0], listener.url, expected(settings)) if demo else None
            app = make_app(
                node,
                auth,
                settings,
                sockets=sockets,
                pages=guests.routes() if guests else (),
                worker_reports=None if worker is None else worker.told,
            )
            if worker is not None:
                _connect_supervisor(worker, node, auth)
            await auth.start()
            await node.start(agreed_terms(settings, ledger.id, secrets))
            websockets.start()
            if guests is not None:
                await guests.arrive()
            serving = asyncio.create_task(
                listener.serve(app, websockets.accept, sockets, node.context.metrics), name="server"
            )
            await listener.started(serving)
            try:
                async with _reloading_secrets(reload or asyncio.Event(), settings, node, ledger.id, auth):
                    yield Served(serving, guests)
            finally:
                if worker is not None and worker.leaving:
                    listener.stop_accepting()
                await node.drain()
                listener.stop()  # nothing new arrives now: all sessions can be handed over
                with suppress(asyncio.CancelledError):
                    await serving
                sockets.abort_all()
                websockets.close_queue.finish()  # handle the closed connections, with their true close times
                await node.stop()
                await websockets.stop()
                await auth.stop()
    finally:
        await ledger.close()


@asynccontextmanager
async def _reloading_secrets(
    reload: asyncio.Event, settings: Settings, node: Node, ledger_id: str, auth: Auth | None = None
) -> AsyncIterator[None]:
    """Read the secrets again whenever `reload` is set, for the duration of the context. Connections stay. New secrets
    that cannot be read, or do not agree with those of the other nodes, are not used, and the log says why."""

    async def follow() -> None:
        while True:
            await reload.wait()
            reload.clear()
            try:
                secrets = resolve_secrets(settings.read_again())
                await node.context.engine.agree(agreed_terms(settings, ledger_id, secrets))
            except HerenowError as error:
                log.error("secret.not_reloaded", why=str(error))
                continue
            if auth is not None:
                auth.use_secrets(secrets)
            log.info("secret.reloaded", secrets=[fingerprint(secret) for secret in secrets])

    task = asyncio.create_task(follow(), name="secrets")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _connect_supervisor(worker: Worker, node: Node, auth: Auth) -> None:
    """Report this node's epoch to the supervisor, send it statistics on request, and retire the epochs of workers that
    it reports dead."""
    worker.use(node.context.authority.epoch)
    worker.on_dead = node.cluster.bury
    worker.report = lambda: encode_report(node, auth)


def _tune_garbage_collector() -> None:
    """Make Python collect garbage less often, and never the objects made so far: ten thousand sockets are millions of
    long-lived objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def engine_of(settings: Settings) -> Engine:
    return make_engine(
        settings.engine, shards=settings.shards, namespace=settings.namespace, capacity=settings.capacity
    )


def expected(settings: Settings) -> Expected:
    return Expected(settings.jwt_issuer, settings.jwt_audience)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is what the operator waits for
