"""List what is degraded on this node, with advice, for `readyz`, the statistics, the dashboard, `herenow top` and `doctor`.

A trouble needs an operator's attention; a condition that ends by itself within a second is not listed. `readyz` needs no
token, so no sentence may contain a user, an address, or how many users do something.
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
    """Everything that is degraded on this node now; causes come before their effects."""
    yield from _engine(node)
    yield from _lease(node)
    yield from _ledger(node)
    if auth.trouble is not None:
        yield Trouble("jwks", auth.trouble, "The last good keys stay in use; look after their source.")
    if node.relations_health.trouble is not None:
        yield Trouble(
            "relations_source",
            node.relations_health.trouble,
            "Look after the application that the setting relations names; herenow doctor asks it.",
        )
    if node.delivery.overload.level is not Shed.NOTHING:
        yield Trouble(
            "overload",
            f"The node is late and gives up {_GIVEN_UP[node.delivery.overload.level]} until it has caught up.",
            "Give it more CPU, more workers or more nodes; docs/delivery.md says what to watch.",
        )


_GIVEN_UP = {Shed.TYPING: "typing", Shed.IDLENESS: "typing and idleness", Shed.TEXT: "typing, idleness and texts"}


def _engine(node: Node) -> Iterator[Trouble]:
    said = node.cluster.lease_trouble or node.cluster.log_trouble or node.records.trouble
    if said is not None:
        detail, fix = explain_store_error(said)
        yield Trouble("engine", f"The store cannot be used. {detail}", fix)
    elif node.records.save_trouble is not None:
        detail, fix = explain_store_error(node.records.save_trouble)
        yield Trouble("marks", f"The store does not let go of what the ledger has. {detail}", fix)
    if node.delivery.stale_shards:
        yield Trouble(
            "stale_shards",
            f"{node.delivery.stale_shards} of {node.context.engine.shards} shards show what was.",
            "Viewers are told so. It ends by itself some seconds after the store is whole and answers.",
        )
    if node.cluster.log_behind > MAX_LOG_LAG:
        yield Trouble(
            "log_lag",
            f"{node.cluster.log_behind} changes of other nodes have not been read yet.",
            "This process cannot keep up: give it more CPU, or look at the way to the store.",
        )


def _lease(node: Node) -> Iterator[Trouble]:
    if not node.context.authority.holds_lease:
        yield Trouble(
            "lease",
            "The node could not renew its lease and decides nothing until it has.",
            "Others take its users for gone a lease and a third after the last renewal: bring the store back.",
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
            "They are frozen, ended without a farewell, or cut off from the store; if that goes on, their users go "
            "into grace.",
        )


def _ledger(node: Node) -> Iterator[Trouble]:
    if node.access.trouble is not None:
        yield Trouble(
            "ledger", node.access.trouble, "Presence goes on. Bring it back; herenow doctor says what it finds there."
        )
    if node.records.save_late:
        yield Trouble(
            "ledger_backlog",
            f"{node.records.backlog} rows wait for the ledger, which does not take them.",
            "Nothing is lost: they are written when it does. Is it full, read-only, locked or away?",
        )
    if not node.access.trusted:
        yield Trouble(
            "relations",
            "The ledger cannot be read; nobody is taken to know anybody.",
            "Bring the ledger back: everybody is shown again by itself.",
        )
    if not node.admin.revocations.whole:
        yield Trouble(
            "revocations",
            "The ledger cannot be read; what was revoked through other nodes may be missed.",
            "Bring the ledger back.",
        )
