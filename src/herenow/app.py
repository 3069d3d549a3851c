"""The composition root: settings in, a running node out. Everything that knows everything is here, and nothing else is.

settings ─▶ ledger, engine, relations ─▶ Node ─▶ Gateway (WebSocket) ┐
                               └────▶ api (REST, pages) ──┴─▶ one port
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network

import uvloop

from herenow import __version__
from herenow.api.app import make_app
from herenow.core.bucket import Rate
from herenow.core.machine import Timings
from herenow.demo import Demo
from herenow.engines import make_engine
from herenow.errors import ConfigurationError
from herenow.gateway.auth import Auth
from herenow.gateway.key_sources import FileSource, Source, UrlSource
from herenow.gateway.listening import Listener
from herenow.gateway.server import Gateway, GatewaySettings
from herenow.gateway.sockets import Sockets, descriptors_allowed, sockets_within
from herenow.gateway.tokens import Expected
from herenow.ledgers import open_ledger
from herenow.logs import configure_logging
from herenow.ports import Ledger, SourceHealth
from herenow.relations import SourceOptions, open_relations
from herenow.secret import resolve_secret
from herenow.service.clock import NodeClock
from herenow.service.node import Node, NodeSettings
from herenow.settings import Settings
from herenow.settings.model import without_password

SWITCH = 0.0005
"""Seconds after which a ledger's thread gives the interpreter back to the event loop; Python's own 5 ms would be waited
for again and again while a thousand frames are sent."""


def serve(settings: Settings, *, demo: bool = False) -> int:
    """Run until told to stop; the exit code."""
    configure_logging(settings.log_format, settings.log_level)
    _calm_the_collector()
    sys.setswitchinterval(SWITCH)
    with Listener(settings) as listener:
        uvloop.run(_serve(settings, listener, demo=demo))
    return 0


async def _serve(settings: Settings, listener: Listener, *, demo: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    async with running(settings, listener, demo=demo) as serving:
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait((stopped, serving), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()


@asynccontextmanager
async def running(
    settings: Settings, listener: Listener, *, demo: bool = False
) -> AsyncIterator[asyncio.Task[None]]:
    """A node that serves on this listener; leaving drains it."""
    secret = resolve_secret(settings) if settings.accepts_secret else None
    if demo and secret is None:
        raise ConfigurationError(
            "--demo signs tokens of its own: configure a secret beside the JWKS to use it."
        )
    ledger = open_ledger(settings.ledger)
    await ledger.open()
    try:
        clock, health = NodeClock(), SourceHealth()
        async with open_relations(relations_options(settings, ledger, clock.now, health)) as relations:
            node = Node(
                make_engine(settings.engine, shards=settings.shards),
                ledger,
                node_settings(settings),
                relations=relations,
                relations_health=health,
                clock=clock,
            )
            auth = Auth(
                secret,
                node.clock,
                settings.token_max_ttl,
                revocations=node.revocations,
                source=key_source(settings),
                expected=expected(settings),
            )
            sockets = Sockets(sockets_within(descriptors_allowed()))
            gateway = Gateway(node, auth, sockets, gateway_settings(settings))
            guests = Demo(node, secret, listener.url, expected(settings)) if demo and secret else None
            app = make_app(node, auth, settings, sockets=sockets, pages=guests.routes() if guests else ())
            await auth.start()
            await node.start(terms(settings, ledger.id, secret))
            gateway.start()
            if guests is not None:
                await guests.arrive()
            serving = asyncio.create_task(listener.serve(app, gateway.accept, sockets), name="server")
            _announce(settings, listener, guests)
            try:
                yield serving
            finally:
                await node.stop()
                sockets.abort_all()
                listener.stop()
                with suppress(asyncio.CancelledError):
                    await serving
                await gateway.stop()
                await auth.stop()
    finally:
        await ledger.close()


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


def node_settings(settings: Settings) -> NodeSettings:
    return NodeSettings(
        timings=Timings(
            idle_after=_ms(settings.idle_after),
            dead_after=_ms(settings.dead_after),
            grace=_ms(settings.grace),
            online_delay=_ms(settings.online_delay),
            max_sessions=settings.max_sessions_per_user,
        ),
        node_lease=settings.node_lease,
        beat_min=_ms(settings.beat_min),
        typing_for=settings.typing_for,
        typing_min=settings.typing_min,
        stuck_after=settings.stuck_after,
        flush_every=settings.flush_every,
        ledger_flush=settings.ledger_flush,
        max_subscriptions=settings.max_subscriptions,
        max_connections_per_user=settings.max_connections_per_user,
        token_max_ttl=settings.token_max_ttl,
        rooms_relate=settings.shares_room == "on",
        polling=Rate(every=_ms(settings.poll_every), burst=settings.poll_burst),
        relations_ttl=settings.relations_ttl if settings.asks_the_application else None,
        embedded=settings.engine.startswith("memory:"),
    )


def key_source(settings: Settings) -> Source | None:
    if settings.jwks_url is not None:
        return UrlSource(settings.jwks_url)
    return None if settings.jwks_file is None else FileSource(settings.jwks_file)


def expected(settings: Settings) -> Expected:
    return Expected(settings.jwt_issuer, settings.jwt_audience)


def gateway_settings(settings: Settings) -> GatewaySettings:
    return GatewaySettings(
        beat_every=settings.beat_every,
        max_frame=settings.max_frame,
        max_subscriptions=settings.max_subscriptions,
        max_bulk=settings.max_bulk,
        origins=frozenset(settings.origins),
        trusted_proxies=tuple(map(ip_network, settings.trusted_proxies)),
    )


def terms(settings: Settings, ledger_id: str, secret: str | None) -> dict[str, str]:
    """What all nodes on one store must agree on. The secret only as a fingerprint."""
    timings = (
        "beat_every",
        "dead_after",
        "idle_after",
        "grace",
        "online_delay",
        "node_lease",
        "token_max_ttl",
    )
    return {
        "ledger": ledger_id,
        "secret": "none" if secret is None else hashlib.sha256(secret.encode()).hexdigest()[:16],
        "shards": str(settings.shards),
        **{name: f"{getattr(settings, name):g}" for name in timings},
    }


def _announce(settings: Settings, listener: Listener, guests: Demo | None) -> None:
    lines = [
        f"herenow {__version__} is here: {listener.url}",
        f"  WebSocket  {listener.url.replace('http', 'ws', 1)}/ws/presence",
        f"  engine     {without_password(settings.engine)}",
        f"  ledger     {without_password(settings.ledger)}",
    ]
    if settings.relations != "ledger":
        lines.append(f"  relations  {without_password(settings.relations)}")
    if guests is not None:
        lines.append(guests.invitation())
    print("\n".join(lines), flush=True)  # noqa: T201 - this is what the operator waits for


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
