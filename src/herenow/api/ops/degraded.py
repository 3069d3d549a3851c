"""List what is degraded on this node, with advice, for `readyz`, the statistics, the dashboard, `herenow top` and `doctor`.

A trouble needs an operator's attention; a condition that ends by itself within a second is not listed. `readyz` needs no
token, so no sentence may contain a user, or how many users do something. Sentences with an address or a path are in
`_PLAIN`, and `readyz` gives them to operators only.
"""

from __future__ import annotations

from collections.abc import Iterator

from herenow.api.ops.stats import Trouble
from herenow.api.ops.store_errors import explain_store_error
from herenow.core.limits import Shed
from herenow.node import Node
from herenow.transport.auth import Auth

MAX_LOG_LAG = 5_000
"""Unread log entries above which a node is degraded. A healthy node has fewer at any moment."""


def find_troubles(node: Node, auth: Auth) -> Iterator[Trouble]:
    """Yield each problem that degrades this node now, with advice for the operator; causes before their effects."""
    yield from _engine(node)
    yield from _lease(node)
    yield from _reapers(node)
    yield from _ledger(node)
    if auth.trouble is not None:
        yield Trouble("jwks", auth.trouble, "The last good keys stay in use; check the server that provides them.")
    if node.relations_health.trouble is not None:
        yield Trouble(
            "relations_source",
            node.relations_health.trouble,
            "Check the application named in the setting relations; herenow doctor sends it a test request.",
        )
    if node.delivery.overload.level is not Shed.NOTHING:
        yield Trouble(
            "overload",
            f"The node is overloaded and drops or delays {_GIVEN_UP[node.delivery.overload.level]} until it has caught up.",
            "Give it more CPU, more workers or more nodes; docs/delivery.md says what to watch.",
        )


_PLAIN = {
    "jwks": "The public keys cannot be read.",
    "relations_source": "The application does not answer questions about relations.",
    "ledger": "The database cannot be read.",
}
"""Details for callers that are no operators, of troubles whose own detail quotes an error or an address."""


def without_addresses(trouble: Trouble) -> Trouble:
    """Return the trouble with a detail that any caller may read."""
    return Trouble(trouble.what, _PLAIN.get(trouble.what, trouble.detail), trouble.fix)


_GIVEN_UP = {
    Shed.TYPING: "typing",
    Shed.IDLENESS: "typing and idle changes",
    Shed.TEXT: "typing, idle changes and custom status texts",
}


def _engine(node: Node) -> Iterator[Trouble]:
    error = node.cluster.lease_trouble or node.cluster.log_trouble or node.records.trouble
    if error is not None:
        detail, fix = explain_store_error(error)
        yield Trouble("engine", f"The live store cannot be used. {detail}", fix)
    elif node.records.save_trouble is not None:
        detail, fix = explain_store_error(node.records.save_trouble)
        yield Trouble("marks", f"The live store cannot record which data the database has saved. {detail}", fix)
    if node.delivery.stale_shards:
        unverified = node.cluster.unverified_shards
        verify = f" {unverified} must be verified against the live store." if unverified else ""
        yield Trouble(
            "stale_shards",
            f"Presence in {node.delivery.stale_shards} of {node.context.engine.shards} shards may be out of date.{verify}",
            "Viewers see it flagged as stale. It ends by itself some seconds after the live store works again.",
        )
    if ends_wait := node.context.authority.outages.shards_waiting:
        yield Trouble(
            "ends_wait",
            f"No user is shown offline in {ends_wait} of {node.context.engine.shards} shards, which could not be written.",
            "It ends by itself a third of node_lease after the live store accepts writes again: until then all nodes write "
            "the sessions that they hold.",
        )
    if node.cluster.log_behind > MAX_LOG_LAG:
        yield Trouble(
            "log_lag",
            f"{node.cluster.log_behind} changes of other nodes have not been read yet.",
            "This process cannot keep up: give it more CPU, or check the network to the live store.",
        )


def _lease(node: Node) -> Iterator[Trouble]:
    if not node.context.authority.holds_lease:
        yield Trouble(
            "lease",
            "The node could not renew its lease in the live store and writes no status change until it has.",
            "Bring the live store back. Other nodes treat its users as disconnected 4/3 node_lease after the last renewal.",
        )
    overdue = [
        other
        for other in node.cluster.others
        if not other.dead and other.still_for is not None and other.still_for > node.context.settings.node_lease * 2 / 3
    ]
    if overdue:
        yield Trouble(
            "nodes",
            f"{len(overdue)} other nodes have not renewed their lease for {max(o.still_for or 0 for o in overdue):.0f} s.",
            "They crashed, are frozen or cannot reach the live store; if this goes on, their users count as disconnected.",
        )


def _reapers(node: Node) -> Iterator[Trouble]:
    unattended, shards = node.cluster.unattended_shards, node.context.engine.shards
    if unattended:
        where = "any shard" if unattended == shards else f"{unattended} of {shards} shards"
        yield Trouble(
            "reapers",
            f"No process expires due users in {where}: reconnect windows, idle times, modes and custom statuses do not end.",
            "Set reap = on for at least one node, or start herenow reap for these shards.",
        )


def _ledger(node: Node) -> Iterator[Trouble]:
    if node.access.trouble is not None:
        yield Trouble(
            "ledger",
            node.access.trouble,
            "Presence continues without it. Bring the database back; herenow doctor checks it.",
        )
    if node.records.save_late:
        yield Trouble(
            "ledger_backlog",
            f"{node.records.backlog} rows wait to be written to the database, which does not accept them.",
            "Nothing is lost: they are written when it does. Check whether it is full, read-only, locked or unreachable.",
        )
    if not node.access.trusted:
        yield Trouble(
            "relations",
            "The database cannot be read, so relations are unknown and all users appear offline to each other.",
            "Bring the database back; users are then shown again without further action.",
        )
    if not node.admin.revocations.whole:
        yield Trouble(
            "revocations",
            "The database cannot be read; tokens revoked through other nodes may still be accepted.",
            "Bring the database back.",
        )
