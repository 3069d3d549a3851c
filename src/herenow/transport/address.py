"""Binds the listening address, for one process or shared by several workers. A supervisor needs no other part of transport.

The system distributes connections over all sockets that listen on an address with SO_REUSEPORT, also over those of other
programs. So the supervisor first checks that the port is free, then reserves it for its workers with a socket that never
listens. This also chooses `port = 0` once for all workers.
"""

from __future__ import annotations

import errno
import socket

from herenow.errors import ConfigurationError

BACKLOG = 4096  # connections that may wait to be accepted: reconnect storms come in bursts


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this address, for a single process. Raises `ConfigurationError` with a remedy if
    the address cannot be used."""
    bound = _bound(host, port)
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigurationError(_explanation(host, port, error)) from None
    return bound


def held(host: str, port: int) -> socket.socket:
    """Reserve the address for a supervisor and its workers, by a bound socket that does not listen. Raises
    `ConfigurationError` with a remedy if it is taken."""
    _bound(host, port).close()  # fails if another process listens there, even with SO_REUSEPORT
    return _bound(host, port, shared=True)


def joined(host: str, port: int) -> socket.socket:
    """Return a worker's socket on the address that its supervisor has reserved; it does not listen yet."""
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
        raise ConfigurationError(_explanation(host, port, error)) from None
    bound.setblocking(False)  # noqa: FBT003 - its signature
    return bound


def _explanation(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: stop the program that listens there, or choose another with --port."
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this process has: choose one above 1023 with --port."
    return f"host {host!r} and port {port} cannot be listened on ({error.strerror}): choose others with --host, --port."
