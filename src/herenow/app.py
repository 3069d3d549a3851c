"""The composition root: settings in, a running node out. Everything that knows everything is here, and nothing else is.

settings ─▶ ledger, engine, relations ─▶ Node ─▶ WebSocketServer ┐
                               └────▶ api (REST, pages) ──┴─▶ one port

A reaper is a node without a door: everything but the last column.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import structlog
import uvloop

from herenow.announcement import announcement, reaper_announcement
from herenow.api.application import make_app
from herenow.api.ops.stats_collect import encode_report
from herenow.core.limits import FanoutLimits, Rate
from herenow.core.settle import Timings
from herenow.demo import Demo
from herenow.engines import make_engine
from herenow.errors import ConfigurationError
from herenow.kit.clock import NodeClock
from herenow.ledgers import open_ledger
from herenow.logs import configure_logging
from herenow.node import Node, NodeSettings, Reaping, make_context
from herenow.ports import Engine, Ledger, SourceHealth
from herenow.relations import SourceOptions, open_relations
from herenow.secret import resolve_secret
from herenow.settings import Settings, agreed_terms
from herenow.transport.auth import Auth, Expected, key_source
from herenow.transport.http import Listener
from herenow.transport.server import WebSocketServer, WebSocketSettings
from herenow.transport.websocket import Sockets, descriptors_allowed, sockets_within
from herenow.workers.worker import Worker

SWITCH = 0.0005
"""Seconds after which a ledger's thread gives the interpreter back to the event loop; Python's own 5 ms would be waited
for again and again while a thousand frames are sent."""


def serve(settings: Settings, *, demo: bool = False) -> int:
    """Run until told to stop; the exit code."""
    _prepare_process(settings)
    with Listener(settings) as listener:
        uvloop.run(_serve(settings, listener, demo=demo))
    return 0


def work(settings: Settings, link: int) -> int:
    """The same as one of several workers, whose supervisor is at the other end of the link."""
    _prepare_process(settings)
    uvloop.run(_work(settings, link))
    return 0


def _prepare_process(settings: Settings) -> None:
    configure_logging(settings.log_format, settings.log_level)
    _calm_the_collector()
    sys.setswitchinterval(SWITCH)


def reap(settings: Settings, reaping: Reaping) -> int:
    """Decide who is due, and nothing else, until told to stop; the exit code."""
    configure_logging(settings.log_format, settings.log_level)
    uvloop.run(_reap(settings, reaping))
    return 0


async def _reap(settings: Settings, reaping: Reaping) -> None:
    stop = _told_to_stop()
    secret = resolve_secret(settings) if settings.accepts_secret else None
    ledger = open_ledger(settings.ledger)
    await ledger.open()
    try:
        node = Node(make_context(engine_of(settings), ledger, replace(node_settings(settings), reaping=reaping)))
        await node.start(agreed_terms(settings, ledger.id, secret))
        _say(reaper_announcement(settings, reaping.shards))
        await stop.wait()
        await node.stop()
    finally:
        await ledger.close()


def _told_to_stop() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    return stop


async def _serve(settings: Settings, listener: Listener, *, demo: bool) -> None:
    stop = _told_to_stop()
    async with running(settings, listener, demo=demo) as served:
        for line in announcement(settings, listener.url):
            _say(line)
        if served.guests is not None:
            _say(served.guests.invitation())
        await _until(stop, served.serving)


async def _work(settings: Settings, link: int) -> None:
    stop = _told_to_stop()
    worker = await Worker.join(link, stop.set)
    structlog.contextvars.bind_contextvars(worker=worker.place.number)
    try:
        with Listener(settings, shared=(worker.place.host, worker.place.port)) as listener:
            async with running(settings, listener, worker=worker) as served:
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
    """What runs."""

    serving: asyncio.Task[None]
    guests: Demo | None


@asynccontextmanager
async def running(
    settings: Settings, listener: Listener, *, demo: bool = False, worker: Worker | None = None
) -> AsyncIterator[Served]:
    """A node that serves on this listener; leaving drains it."""
    secret = resolve_secret(settings) if settings.accepts_secret else None
    if demo and secret is None:
        raise ConfigurationError("--demo signs tokens of its own: configure a secret beside the JWKS to use it.")
    ledger = open_ledger(settings.ledger)
    await ledger.open()
    try:
        clock, health = NodeClock(), SourceHealth()
        async with open_relations(relations_options(settings, ledger, clock.now, health)) as relations:
            node = Node(
                make_context(engine_of(settings), ledger, node_settings(settings), clock=clock),
                relations=relations,
                relations_health=health,
                on_epoch=_ignore if worker is None else worker.use,
            )
            auth = Auth(
                secret,
                node.context.clock,
                settings.token_max_ttl,
                revocations=node.admin.revocations,
                source=key_source(settings.jwks_url, settings.jwks_file),
                expected=expected(settings),
            )
            sockets = Sockets(sockets_within(descriptors_allowed()))
            websockets = WebSocketServer(node, auth, sockets, websocket_settings(settings))
            guests = Demo(node, secret, listener.url, expected(settings)) if demo and secret else None
            app = make_app(
                node,
                auth,
                settings,
                sockets=sockets,
                pages=guests.routes() if guests else (),
                worker_reports=None if worker is None else worker.told,
            )
            if worker is not None:
                _take_part(worker, node, auth)
            await auth.start()
            await node.start(agreed_terms(settings, ledger.id, secret))
            websockets.start()
            if guests is not None:
                await guests.arrive()
            serving = asyncio.create_task(
                listener.serve(app, websockets.accept, sockets, node.context.metrics), name="server"
            )
            await listener.started(serving)
            try:
                yield Served(serving, guests)
            finally:
                if worker is not None and worker.leaving:
                    listener.stop_accepting()
                await node.drain()
                listener.stop()  # from here on nothing comes in, so what we hold can be handed over whole
                with suppress(asyncio.CancelledError):
                    await serving
                sockets.abort_all()
                websockets.close_queue.finish()  # when they went is known, and is not when we stop
                await node.stop()
                await websockets.stop()
                await auth.stop()
    finally:
        await ledger.close()


def _ignore(epoch: str) -> None:
    """No supervisor wants to know it."""


def _take_part(worker: Worker, node: Node, auth: Auth) -> None:
    """The supervisor knows under which epochs we write, and we retire those of others that it saw die."""
    worker.use(node.context.authority.epoch)
    worker.on_dead = node.cluster.bury
    worker.report = lambda: encode_report(node, auth)


def relations_options(
    settings: Settings, ledger: Ledger, now: Callable[[], int], health: SourceHealth
) -> SourceOptions:
    secret = settings.relations_secret
    return SourceOptions(
        where=settings.relations,
        ledger=ledger,
        secret="" if secret is None else secret.get_secret_value(),
        now=now,
        health=health,
    )


def _calm_the_collector() -> None:
    """Ten thousand sockets are millions of objects that live long: walking them again and again finds nothing. What was
    made so far stays for good, and young objects are looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def engine_of(settings: Settings) -> Engine:
    return make_engine(
        settings.engine, shards=settings.shards, namespace=settings.namespace, capacity=settings.capacity
    )


def node_settings(settings: Settings) -> NodeSettings:
    return NodeSettings(
        timings=Timings(
            idle_after=settings.idle_after_ms,
            dead_after=settings.dead_after_ms,
            grace=settings.grace_ms,
            online_delay=settings.online_delay_ms,
            max_sessions=settings.max_sessions_per_user,
        ),
        node_lease=settings.node_lease,
        beat_min=settings.beat_min_ms,
        typing_for=settings.typing_for,
        typing_min=settings.typing_min,
        stuck_after=settings.stuck_after,
        crowds=FanoutLimits(settings.pace_above, settings.push_ceiling),
        flush_every=settings.flush_every,
        ledger_flush=settings.ledger_flush,
        max_subscriptions=settings.max_subscriptions,
        max_connections_per_user=settings.max_connections_per_user,
        token_max_ttl=settings.token_max_ttl,
        rooms_relate=settings.rooms_relate,
        polling=Rate(every=settings.poll_every_ms, burst=settings.poll_burst),
        relations_ttl=settings.relations_ttl if settings.asks_the_application else None,
        reaping=Reaping() if settings.reap == "on" else Reaping(shards=frozenset()),
        embedded=settings.engine_in_memory,
    )


def expected(settings: Settings) -> Expected:
    return Expected(settings.jwt_issuer, settings.jwt_audience)


def websocket_settings(settings: Settings) -> WebSocketSettings:
    return WebSocketSettings(
        beat_every=settings.beat_every,
        max_frame=settings.max_frame,
        max_subscriptions=settings.max_subscriptions,
        max_bulk=settings.max_bulk,
        origins=frozenset(settings.origins),
        trusted_proxies=settings.trusted_networks,
    )


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is what the operator waits for
