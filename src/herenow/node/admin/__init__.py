"""Admin: operations of operators and back ends on users, and figures about this node.

`users` disconnects, revokes and deletes, `revocations` knows revoked tokens, `explain` gives the reason for a view,
`stats_history` keeps the figures of the last minutes. `Admin` is the face of this package.
"""

from __future__ import annotations

from herenow.node.access import RelationCache
from herenow.node.admin.explain import Explain, Explanation
from herenow.node.admin.revocations import FORGET_EVERY, Revocations
from herenow.node.admin.stats_history import COUNTED, LOOK, STEP, Sample, StatsHistory
from herenow.node.admin.users import Users
from herenow.node.cluster import Cluster
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.records import Records
from herenow.node.sessions import Sessions
from herenow.node.viewing import Viewing

__all__ = ["COUNTED", "STEP", "Admin", "Explanation", "Revocations", "Sample"]


class Admin:
    def __init__(
        self,
        context: Context,
        delivery: Delivery,
        records: Records,
        sessions: Sessions,
        cluster: Cluster,
        access: RelationCache,
        viewing: Viewing,
    ) -> None:
        self.revocations = revocations = Revocations(context)
        self.users = users = Users(context, records, sessions, cluster.messages, access, viewing, revocations)
        self.history = StatsHistory(context.metrics, context.clock, records, delivery)
        explain = Explain(context, records, cluster, access, viewing)
        self._tasks = context.tasks
        self._delivery = delivery
        records.subscribe_deletions(users)
        access.subscribe_changes(revocations)

        self.start = revocations.start
        self.disconnect = users.disconnect
        self.revoke = users.revoke
        self.delete = users.delete
        self.explain = explain.explain
        self.list_users = explain.users

    def run(self) -> None:
        self._tasks.every(FORGET_EVERY, self.revocations.forget_old, "voids")
        self._tasks.every(LOOK, self._sample, "pulse")

    async def _sample(self) -> None:
        self.history.look()
        self._delivery.top_targets.turn()
