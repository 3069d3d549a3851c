"""Other servers that can do presence, on the same work in the same run: each module is one peer, with a sentence on
what it does and one on each thing it cannot do.
"""

from __future__ import annotations

from bench.peers.centrifugo import Centrifugo
from bench.peers.channels import Channels
from bench.peers.nchan import Nchan
from bench.peers.peer import Peer
from bench.peers.prosody import Prosody
from bench.peers.socketio import SocketIO
from bench.peers.starlette import Starlette

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Starlette(),
        Channels("daphne"),
        Channels("uvicorn"),
        Channels("pubsub"),
        SocketIO(),
        Nchan(),
        Prosody(),
        Centrifugo(),
    )
}


def chosen(wanted: str) -> list[Peer]:
    """From a comma-separated list of names: `all`, or `quick` for those of a quick run."""
    if wanted == "all":
        return list(PEERS.values())
    if wanted == "quick":
        return [peer for peer in PEERS.values() if peer.quick]
    unknown = [name for name in wanted.split(",") if name not in PEERS]
    if unknown:
        raise ValueError(f"there is no peer {unknown[0]!r}; there are {', '.join(PEERS)}, quick and all")
    return [PEERS[name] for name in wanted.split(",")]
