"""Prosody: an XMPP server in Lua. XMPP has presence, rosters and subscriptions, so of all peers it does most of what
herenow does: it knows which users are available or away, and informs those who may know.

Accounts and rosters are files written before it starts. Clients speak XMPP over WebSocket (RFC 7395).
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from bench.load import Crowd, Http, masked, upgrade
from bench.peers import cache
from bench.peers.peer import STAR, Change, Looking, Peer, Talk
from bench.server import free_port, process

HOST = "localhost"
PASSWORD = "secret"

CONFIGURATION = """
run_as_root = true
network_backend = "epoll"
network_settings = {{ tcp_backlog = 1024 }}
modules_enabled = {{ "roster", "saslauth", "websocket", "ping" }}
modules_disabled = {{ "s2s", "s2s_auth_certs", "offline" }}
c2s_ports = {{ }}
c2s_direct_tls_ports = {{ }}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
storage = "internal"
http_ports = {{ {port} }}
http_interfaces = {{ "127.0.0.1" }}
https_ports = {{ }}
log = {{ error = "{folder}/error.log" }}
VirtualHost "{host}"
    http_host = "127.0.0.1"
"""

OPEN = masked(f'<open xmlns="urn:ietf:params:xml:ns:xmpp-framing" to="{HOST}" version="1.0"/>'.encode())
BIND = masked(
    b'<iq xmlns="jabber:client" type="set" id="bind"><bind xmlns="urn:ietf:params:xml:ns:xmpp-bind">'
    b"<resource>web</resource></bind></iq>"
)
HERE = masked(b'<presence xmlns="jabber:client"/>')
CHANGES = (masked(b'<presence xmlns="jabber:client"><show>dnd</show></presence>'), HERE)
PING = masked(b'<iq xmlns="jabber:client" type="get" id="ping"><ping xmlns="urn:xmpp:ping"/></iq>')


class Prosody(Peer):
    name = "prosody"
    does = (
        "Prosody with XMPP over WebSocket, one process: accounts, rosters in files, presence told to who is subscribed. It "
        "knows away and do not disturb, but no grace, no idleness of its own, no last seen, and tells each change by itself"
    )
    quick = False
    differs: ClassVar[dict[str, str]] = {
        "beats": "an XMPP ping, which is answered; a browser's client has no other sign of life",
        "arrive": "a password instead of a token; eight frames to come in, and one for each person looked at",
    }
    cannot: ClassVar[dict[str, str]] = {"lookup": "has no question about several people; it only tells"}

    def missing(self) -> str | None:
        return cache.prosody_missing()

    def install(self) -> str:
        return cache.install_prosody()

    @contextmanager
    def serve(self, people: Sequence[Looking]) -> Iterator[Talk]:
        with tempfile.TemporaryDirectory(prefix="herenow-bench-") as name:
            folder, port = Path(name), free_port()
            (folder / "certs").mkdir()
            (folder / "prosody.cfg.lua").write_text(CONFIGURATION.format(folder=folder, port=port, host=HOST))
            _write_accounts(folder / "data" / HOST, people)
            root = cache.prosody()
            command = [str(root / "usr/bin/lua5.4"), str(_program(root, folder)), "-F"]
            with process(command, _environment(root), folder / "server.log", port) as server:
                yield _Talk(server)


def _program(root: Path, folder: Path) -> Path:
    """The packaged program names its installation folders; these are replaced by ours."""
    ours = {
        "SOURCE": root / "usr/lib/prosody",
        "PLUGIN": root / "usr/lib/prosody/modules/",
        "CONFIG": folder,
        "DATA": folder / "data",
    }
    text = (root / "usr/bin/prosody").read_text()
    for kind, place in ours.items():
        text, found = re.subn(rf"(?m)^CFG_{kind}DIR=.*$", f"CFG_{kind}DIR='{place}';", text)
        assert found == 1, kind
    program = folder / "prosody.lua"
    program.write_text(text)
    return program


def _environment(root: Path) -> dict[str, str]:
    [libraries] = (root / "usr/lib").glob("*-linux-gnu")
    return dict(os.environ) | {
        "LUA_PATH": f"{root}/usr/share/lua/5.4/?.lua;;",
        "LUA_CPATH": f"{libraries}/lua/5.4/?.so;;",
        "LD_LIBRARY_PATH": str(libraries),
    }


def _write_accounts(folder: Path, people: Sequence[Looking]) -> None:
    rosters: dict[str, dict[str, str]] = {user: {} for user in (STAR, *(user for user, _ in people))}
    for user, targets in people:
        for target in targets:
            _subscribe(rosters, user, target)
    for kind in ("accounts", "roster"):
        (folder / kind).mkdir(parents=True)
    for user, roster in rosters.items():
        (folder / "accounts" / f"{user}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }};')
        (folder / "roster" / f"{user}.dat").write_text(_roster(roster))


def _subscribe(rosters: dict[str, dict[str, str]], viewer: str, target: str) -> None:
    for owner, other, direction in ((viewer, target, "to"), (target, viewer, "from")):
        known = rosters[owner].get(other, direction)
        rosters[owner][other] = direction if known == direction else "both"


def _roster(entries: Mapping[str, str]) -> str:
    each = "".join(
        f'["{other}@{HOST}"] = {{ ["subscription"] = "{direction}"; ["groups"] = {{}} }};\n'
        for other, direction in entries.items()
    )
    return f'return {{ {each} [false] = {{ ["version"] = 1; ["pending"] = {{}} }} }};'


class _Talk(Talk):
    frames_to_star = 1

    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return upgrade("/xmpp-websocket", "Sec-WebSocket-Protocol: xmpp\r\n")

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        """All but the presence, which is answered with as many frames as there are targets."""
        secret = b64encode(f"\0{user}\0{PASSWORD}".encode()).decode()
        login = f'<auth xmlns="urn:ietf:params:xml:ns:xmpp-sasl" mechanism="PLAIN">{secret}</auth>'
        return [OPEN, masked(login.encode()), OPEN, BIND]

    def join(self, crowd: Crowd, people: Sequence[Looking]) -> list[int]:
        clients = crowd.join(self.handshake(user) for user, _ in people)
        spoken = [self.openings(user) for user, _ in people]
        for number, answers in enumerate((2, 1, 2, 1)):
            crowd.ask(((client, frames[number]) for client, frames in zip(clients, spoken, strict=True)), answers)
        self._appear(crowd, clients, people)
        return clients

    def _appear(self, crowd: Crowd, clients: list[int], people: Sequence[Looking]) -> None:
        """One after the other, because the order decides the number of frames: each user gets their own presence and
        that of every target, available or not, and viewers who are already available get the user's.
        """
        viewers: dict[str, set[str]] = {}
        for user, targets in people:
            for target in targets:
                viewers.setdefault(target, set()).add(user)
        goal, here = crowd.frames, set[str]()
        for client, (user, targets) in zip(clients, people, strict=True):
            crowd.send(client, HERE)
            goal += 1 + len(targets) + len(viewers.get(user, set()) & here)
            here.add(user)
            crowd.until_frames(goal)

    def beat(self) -> bytes:
        return PING

    def star(self, crowd: Crowd) -> Change:
        [client] = self.join(crowd, [(STAR, ())])
        changes = itertools.cycle(CHANGES)
        return lambda: crowd.send(client, next(changes))

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        return {}
