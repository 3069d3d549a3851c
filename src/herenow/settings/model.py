"""The settings with their defaults, and the validation of combinations.

Timings may be as short as one likes (tests use seconds); only their relations are checked. A new setting is one
field here; it becomes a flag, a variable, a key of the file and a row of `herenow config` automatically.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from herenow.settings.kinds import (
    About,
    Allowed,
    Bytes,
    Count,
    ExistingFile,
    Host,
    Name,
    Networks,
    Origins,
    Port,
    Seconds,
    SecondsOrZero,
    Secrets,
    Shards,
    Unit,
    Words,
    refused,
)

MIN_SECRET_BYTES = 32  # RFC 7518, section 3.2: an HS256 key must be at least as long as the hash
MAX_SECRETS = 8  # all may be tried for each token
MAX_WORKERS = 128  # each is a Python process: more than a machine has cores for
POSTGRESQL = ("postgresql://", "postgres://")

_KEYS = ("secret", "jwks_url", "jwks_file")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as `herenow config` shows it. The value of a secret is hidden."""

    name: str
    value: str
    default: str
    unit: str
    source: str
    about: str


class Settings(BaseModel):
    """The value of every setting. Built by `layers.load`; tests build it directly."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _read_again: Callable[[], Self] | None = PrivateAttr(default=None)

    # A validator sees only the fields above its own, so the order matters.

    # Secrets and addresses
    secret: Annotated[
        Secrets | None,
        About(
            "HMAC secret of tokens, or several, one per line: the first signs, all verify; SIGHUP reads them again; if not "
            "set, one is generated and kept in a file"
        ),
        Allowed(f"at least {MIN_SECRET_BYTES} bytes long; at most {MAX_SECRETS} of them"),
    ] = None
    jwks_url: Annotated[
        str | None,
        About("address of the public keys (JWKS) that verify tokens of an issuer"),
        Allowed("an https:// address; http:// only on this machine"),
    ] = None
    jwks_file: Annotated[
        ExistingFile, About("file of the public keys (JWKS) that verify tokens of an issuer; re-read when it changes")
    ] = None
    jwt_issuer: Annotated[
        str | None, Field(min_length=1), About("the issuer (iss) that tokens must name"), Allowed("a name, not empty")
    ] = None
    jwt_audience: Annotated[Words, About("audiences (aud); tokens must name one of them")] = ()
    host: Annotated[Host, About("address to listen on")] = "127.0.0.1"
    port: Annotated[Port, About("port to listen on, for WebSocket and HTTP")] = 8000
    tls_cert: Annotated[ExistingFile, About("TLS certificate chain, PEM")] = None
    tls_key: Annotated[ExistingFile, About("private key of the TLS certificate, PEM")] = None
    engine: Annotated[
        str,
        About("URL of the live store, which holds the current presence of users"),
        Allowed(
            "memory://, redis://host:port/db, rediss://…, redis+sentinel://h1:p,h2:p/name or redis+cluster://h1:p,h2:p"
        ),
    ] = "memory://"
    ledger: Annotated[
        str,
        About("URL of the database, which holds last seen, modes, privacy rules and relations"),
        Allowed("sqlite:///path, sqlite:// to keep it in memory, or postgresql://user:password@host:5432/database"),
    ] = "sqlite:///herenow.db"
    relations_secret: Annotated[
        SecretStr | None,
        About("HMAC secret that signs requests to the application (see relations)"),
        Allowed(f"at least {MIN_SECRET_BYTES} bytes long"),
    ] = None
    relations_network: Annotated[
        Literal["public", "private"],
        About("network between herenow and the application; private allows http:// to other machines"),
        Allowed("public or private"),
    ] = "public"
    relations: Annotated[
        str,
        About("source of relations between users: the database (ledger), all are related (open), or your application"),
        Allowed("ledger, open, or the https:// address of your application (http:// on this machine)"),
    ] = "ledger"
    relations_ttl: Annotated[
        Seconds, About("how long a relation from the application is cached, unless it reports a change")
    ] = 300.0
    shares_room: Annotated[
        Literal["off", "on"], About("whether members of one room may see each other"), Allowed("on or off")
    ] = "off"
    workers: Annotated[
        int,
        Field(ge=1, le=MAX_WORKERS),
        About("processes that share the port; several need a Redis engine"),
        Allowed(f"a whole number from 1 to {MAX_WORKERS}"),
    ] = 1
    reap: Annotated[
        Literal["on", "off"],
        About("whether this node processes timeouts of all users; off leaves them to other nodes and herenow reap"),
        Allowed("on or off"),
    ] = "on"
    namespace: Annotated[Name, About("prefix of all keys in the store, to separate products that share it")] = "herenow"
    capacity: Annotated[Count, Unit("users"), About("expected number of users, for the layout of the store")] = (
        1_000_000
    )
    shards: Annotated[Shards, About("number of parts into which users are divided")] = 16

    # Access
    origins: Annotated[Origins, About("web origins that may connect, besides the server's own")] = ()
    trusted_proxies: Annotated[Networks, About("proxies whose forwarding headers are trusted")] = ()
    trust_loopback: Annotated[
        Literal["on", "off"],
        About("whether requests from this machine may read /metrics, statistics and the dashboard without a token"),
        Allowed("on or off; off if a forwarder on this machine adds no header, such as a TCP proxy or a tunnel"),
    ] = "on"
    token_max_ttl: Annotated[Seconds, About("longest time until a token may expire")] = 86_400.0

    # Timings of presence
    beat_every: Annotated[Seconds, About("interval at which clients send heartbeats")] = 30.0
    dead_after: Annotated[Seconds, About("time without heartbeats or messages after which a session is lost")] = 90.0
    idle_after: Annotated[Seconds, About("inactivity after which a user is away; users may override it")] = 300.0
    grace: Annotated[SecondsOrZero, About("time that a lost session has to reconnect before viewers notice")] = 30.0
    online_delay: Annotated[SecondsOrZero, About("delay before viewers see that a user is online")] = 0.0
    node_lease: Annotated[Seconds, About("time without contact to the store after which a node counts as dead")] = 10.0
    typing_for: Annotated[Seconds, About("how long a typing notice is shown")] = 6.0
    typing_min: Annotated[SecondsOrZero, About("typing notices closer together than this are dropped")] = 2.0
    beat_min: Annotated[SecondsOrZero, About("heartbeats closer than this are skipped; at most half of beat_every")] = (
        5.0
    )

    # Limits and rates
    flush_every: Annotated[SecondsOrZero, About("pause between two frames to a connection; 0: depends on load")] = 0.0
    stuck_after: Annotated[Seconds, About("a connection whose client has not read for this long is closed")] = 10.0
    pace_above: Annotated[
        Count, Unit("viewers"), About("a change with more viewers on a node is delivered over up to 10 s")
    ] = 5_000
    push_ceiling: Annotated[
        Count, Unit("viewers"), About("a change with more viewers on a node is not pushed; clients poll")
    ] = 100_000
    ledger_flush: Annotated[Seconds, About("how often changes are written to the database")] = 1.0
    last_seen_marks: Annotated[
        Literal["on", "off"],
        About(
            "whether the database knows who is visible, so that last seen survives the loss of all nodes and the store"
        ),
        Allowed("on or off"),
    ] = "on"
    max_subscriptions: Annotated[Count, Unit("per socket"), About("users that one connection may watch")] = 500
    max_bulk: Annotated[Count, Unit("ids"), About("users that one request or frame may name")] = 1000
    max_sessions_per_user: Annotated[Count, Unit("per user"), About("devices of one user in the cluster")] = 50
    max_connections_per_user: Annotated[Count, Unit("per node"), About("connections of one user to one node")] = 20
    max_connections_per_address: Annotated[
        Count | None,
        Unit("per process"),
        About("connections of one address (IPv6: one /64), proxies excepted; by default a quarter of the descriptors"),
        Allowed("a whole number, 1 or more"),
    ] = None
    poll_every: Annotated[
        SecondsOrZero, About("time between two bulk reads of a user without a live session; 0: no limit")
    ] = 30.0
    poll_burst: Annotated[Count, Unit("reads"), About("bulk reads that such a user may make at once after a pause")] = 5
    max_frame: Annotated[Bytes, About("largest WebSocket message")] = 65_536
    max_body: Annotated[Bytes, About("largest HTTP request body")] = 2_097_152

    # Implementation and logging
    websocket: Annotated[
        Literal["picows", "websockets"],
        About("WebSocket implementation; websockets is slower"),
        Allowed("picows or websockets"),
    ] = "picows"
    log_format: Annotated[Literal["console", "json"], About("format of log lines"), Allowed("console or json")] = (
        "console"
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        About("lowest level that is logged"),
        Allowed("debug, info, warning or error"),
    ] = "info"

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_is_a_number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a boolean")
        return value

    @field_validator("secret")
    @classmethod
    def _secrets_are_long_enough(cls, value: tuple[SecretStr, ...] | None) -> tuple[SecretStr, ...] | None:
        if value is None:
            return None
        if len(value) > MAX_SECRETS:
            raise refused(f"there may be at most {MAX_SECRETS} secrets, and there are {len(value)}")
        for number, each in enumerate(value or (SecretStr(""),), start=1):
            _check_length(each, "it" if len(value) <= 1 else f"each secret (this is number {number})")
        return value

    @field_validator("relations_secret")
    @classmethod
    def _secret_is_long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _check_length(value, "it")
        return value

    @field_validator("host")
    @classmethod
    def _public_address_needs_a_key(cls, value: str, info: ValidationInfo) -> str:
        # A field that was refused is missing in info.data; its own error is shown instead.
        if not _is_loopback(value) and all(info.data.get(name, "refused") is None for name in _KEYS):
            raise refused(
                "listening beyond this machine needs a configured secret (HERENOW_SECRET or HERENOW_SECRET_FILE) "
                "or public keys (jwks_url or jwks_file); without them it must be a loopback address"
            )
        return value

    @field_validator("jwks_url")
    @classmethod
    def _public_keys_need_https(cls, value: str | None) -> str | None:
        """Accept only https:// addresses, and http:// on this machine: an attacker that can change the keys in transit
        can sign tokens for any user."""
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, value)):
            raise ValueError("not an address")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise refused("public keys must come by https:// (or from this machine, or by jwks_file)")
        return value

    @field_validator("jwks_file")
    @classmethod
    def _one_source_of_keys(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("jwks_url") is not None:
            raise refused("jwks_url and jwks_file are two sources of the same keys: give one of them")
        return value

    @field_validator("tls_key")
    @classmethod
    def _certificate_and_key_come_together(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if "tls_cert" in info.data and (value is None) != (info.data["tls_cert"] is None):
            raise refused("tls_cert and tls_key must be given together, or neither")
        return value

    @field_validator("engine")
    @classmethod
    def _engine_exists(cls, value: str) -> str:
        if value != "memory://" and not re.match(r"(rediss?|redis\+sentinel|redis\+cluster)://[^/?]", value):
            raise ValueError("unknown engine")
        return value

    @field_validator("ledger")
    @classmethod
    def _ledger_exists(cls, value: str) -> str:
        if value.startswith(POSTGRESQL):
            return value
        path = value.removeprefix("sqlite:///")
        if value != "sqlite://" and (path in (value, "") or "?" in path):
            raise ValueError("unknown ledger")
        return value

    @field_validator("relations")
    @classmethod
    def _relations_exist(cls, value: str, info: ValidationInfo) -> str:
        if value in ("ledger", "open"):
            return value
        host = _callback_host(value)
        plain = value.startswith("http://") and not _is_loopback(host)
        if plain and info.data.get("relations_network") == "public":
            raise refused(
                "relations would cross the network unencrypted and could be changed on the way; use https://, or set "
                "relations_network to private if you trust every machine of that network"
            )
        # A secret that was refused is missing in info.data; its own error is shown instead.
        if "relations_secret" in info.data and info.data["relations_secret"] is None:
            raise refused(
                "requests to the application are signed, which needs relations_secret "
                "(HERENOW_RELATIONS_SECRET or HERENOW_RELATIONS_SECRET_FILE)"
            )
        return value

    @field_validator("shares_room")
    @classmethod
    def _rooms_need_local_relations(cls, value: str, info: ValidationInfo) -> str:
        if value == "on" and info.data.get("relations", "ledger") not in ("ledger", "open"):
            raise refused(
                "the setting relations names an application, which decides who may see whom: let it report members "
                "of one room as contacts"
            )
        return value

    @field_validator("workers")
    @classmethod
    def _workers_need_shared_stores(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and info.data.get("engine") == "memory://":
            raise refused(
                "memory:// is inside one process, and other processes would not see its users: several workers need "
                "Redis (engine = redis://…)"
            )
        if value > 1 and info.data.get("ledger") in ("sqlite://", "sqlite:///:memory:"):
            raise refused("a database in memory is inside one process: several workers need one in a file")
        return value

    @field_validator("reap")
    @classmethod
    def _memory_engine_must_reap(cls, value: str, info: ValidationInfo) -> str:
        if value == "off" and info.data.get("engine") == "memory://":
            raise refused("memory:// is inside this process, and no other process could handle its timeouts")
        return value

    @field_validator("dead_after")
    @classmethod
    def _one_lost_beat_is_tolerated(cls, value: float, info: ValidationInfo) -> float:
        beat_every = info.data.get("beat_every", 0.0)
        if value < 2 * beat_every:
            raise refused(f"it must be at least twice beat_every, which is {beat_every:g} s")
        return value

    @field_validator("beat_min")
    @classmethod
    def _regular_beats_are_not_skipped(cls, value: float, info: ValidationInfo) -> float:
        beat_every: float = info.data.get("beat_every", value * 2)
        return min(value, beat_every / 2)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that tell the operator of probable mistakes in the settings. They do not prevent the start."""
        return self._warnings

    @property
    def has_jwks(self) -> bool:
        return self.jwks_url is not None or self.jwks_file is not None

    @property
    def accepts_secret(self) -> bool:
        """True if tokens may be signed with the secret: one is configured, or no public keys are configured."""
        return self.secret is not None or not self.has_jwks

    @property
    def ledger_path(self) -> Path | None:
        """Path of the SQLite file; None if the ledger is in memory or in a database server."""
        if self.ledger.startswith(POSTGRESQL):
            return None
        path = self.ledger.removeprefix("sqlite://").removeprefix("/")
        return Path(path) if path not in ("", ":memory:") else None

    # Derived values

    @property
    def rooms_relate(self) -> bool:
        return self.shares_room == "on"

    @property
    def engine_in_memory(self) -> bool:
        return self.engine.startswith("memory:")

    @property
    def trusted_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(map(ip_network, self.trusted_proxies))

    @property
    def asks_the_application(self) -> bool:
        """True if relations are read from the operator's application, by an HTTP callback."""
        return self.relations not in ("ledger", "open")

    @property
    def edges_kept_here(self) -> frozenset[str]:
        """Kinds of relations (`follow`, `contact`, `room`) that are stored in the ledger."""
        if self.relations == "ledger":
            return frozenset({"follow", "contact", "room"})
        return frozenset({"room"} if self.relations == "open" else ())

    def source_of(self, name: str) -> str:
        """Return the source of a setting's value: the name of a flag, variable or file, "argument" or "default"."""
        if name in self._sources:
            return self._sources[name]
        return "argument" if name in self.model_fields_set else "default"

    def rows(self) -> Iterator[Row]:
        for name, field in type(self).model_fields.items():
            yield Row(
                name=name,
                value=_shown(getattr(self, name)),
                default=_shown(field.default),
                unit=unit_of(field),
                source=self.source_of(name),
                about=about(field),
            )

    def found_in(self, sources: Mapping[str, str], warnings: tuple[str, ...], read_again: Callable[[], Self]) -> Self:
        """Set the sources of the values (setting → source), the warnings, and the function that reads the settings again.
        Returns self."""
        self._sources, self._warnings, self._read_again = dict(sources), warnings, read_again
        return self

    def read_again(self) -> Self:
        """Read the settings again from the same flags, variables and files. Raises `ConfigurationError`. Settings that
        were not read from there are returned unchanged."""
        return self if self._read_again is None else self._read_again()


def milliseconds(seconds: float) -> int:
    """Convert a duration from seconds to whole milliseconds, the unit of `core`."""
    return round(seconds * 1000)


def about(field: FieldInfo) -> str:
    return next(mark.text for mark in field.metadata if isinstance(mark, About))


def unit_of(field: FieldInfo) -> str:
    return next((mark.name for mark in field.metadata if isinstance(mark, Unit)), "")


def allowed(field: FieldInfo) -> str:
    return next(mark.words for mark in field.metadata if isinstance(mark, Allowed))


def is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


def without_password(text: str) -> str:
    """Mask the passwords in a URL, for output and logs. In a malformed URL, more than the password may be masked."""
    text = re.sub(r"(://[^@:/]*:).*@", r"\1***@", text, flags=re.DOTALL)
    return re.sub(r"(password=)[^&'\"]*", r"\1***", text)


def _shown(value: object) -> str:
    match value:
        case None | ():
            return "-"
        case SecretStr() | (SecretStr(),):
            return "(set)"
        case (SecretStr(), *_):
            return f"({len(value)} set)"
        case tuple():
            return ", ".join(map(str, value))
        case float():
            return f"{value:g}"
        case _:
            return without_password(str(value))


def _check_length(secret: SecretStr, subject: str) -> None:
    length = len(secret.get_secret_value().encode(errors="replace"))
    if length < MIN_SECRET_BYTES:
        raise refused(f"{subject} must be at least {MIN_SECRET_BYTES} bytes long and has {length}")


def _callback_host(url: str) -> str:
    """Return the host of the application's URL. Raises an error that pydantic reports if the URL cannot be used."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("not a URL")
    parts = urlsplit(url)
    if not url.startswith(("http://", "https://")) or not parts.hostname or parts.port == 0:
        raise ValueError("not an HTTP URL")
    if parts.username is not None or parts.password is not None:
        raise refused("an address without a user name or password is needed; requests are signed instead")
    if parts.fragment:
        raise ValueError("a fragment is not sent")
    return parts.hostname


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
