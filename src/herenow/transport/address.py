"""The address we listen on: whether it can be had, and how several processes share it.

The system spreads connections over all sockets that listen on one address with SO_REUSEPORT. It asks nobody whether they
belong together, so the supervisor looks first whether somebody else is there, and then holds the port for its workers with a
socket that never listens. `port = 0` is thereby chosen once for all of them.

Knows nothing of HTTP: a supervisor needs no more than this.
"""

from __future__ import annotations

import errno
import socket

from herenow.errors import ConfigurationError

BACKLOG = 4096
"""Connections that may wait to be accepted: a storm of reconnects comes in bursts."""


def listening(host: str, port: int) -> socket.socket:
    """For one process alone. Raises `ConfigurationError` with a remedy."""
    bound = _bound(host, port)
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigurationError(_why(host, port, error)) from None
    return bound


def held(host: str, port: int) -> socket.socket:
    """For a supervisor: the address is its own and its workers'. Raises `ConfigurationError` with a remedy."""
    _bound(host, port).close()  # fails where anybody listens, also somebody who would share
    return _bound(host, port, shared=True)


def joined(host: str, port: int) -> socket.socket:
    """For a worker: its part of what its supervisor holds."""
    return _bound(host, port, shared=True)


def url_of(bound: socket.socket, *, secure: bool) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(_why(host, port, error)) from None
    bound.setblocking(False)  # noqa: FBT003 - its signature
    return bound


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: stop what listens there, or choose another with --port."
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this process has: choose one above 1023 with --port."
    return f"host {host!r} and port {port} cannot be listened on ({error.strerror}): choose others with --host, --port."
