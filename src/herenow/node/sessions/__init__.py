"""Sessions: devices that are connected to this node or send REST heartbeats, and the modes of their users.

`connections` has devices with a socket, `rest_beats` those without, `liveness` finds silent ones, `modes` sets mode and
custom status. `Sessions` is the face of this package.
"""

from __future__ import annotations

from herenow.core.limits import SIGNING_OUT
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.records import Records
from herenow.node.sessions.connections import ConnectionEvents, Connections
from herenow.node.sessions.liveness import TURN, LivenessMonitor
from herenow.node.sessions.modes import Chosen, Modes
from herenow.node.sessions.rest_beats import RestBeats
from herenow.node.user_rate import UserRate

__all__ = ["TURN", "Chosen", "ConnectionEvents", "Sessions"]


class Sessions:
    def __init__(self, context: Context, records: Records, delivery: Delivery) -> None:
        self.liveness = liveness = LivenessMonitor(context, records)
        self.connections = connections = Connections(context, records, delivery, liveness)
        self.rest_beats = rest_beats = RestBeats(context, records, connections, liveness)
        self.modes = modes = Modes(context, records)
        self._tasks = context.tasks
        records.subscribe_sessions(connections)
        self.subscribe = connections.subscribe

        # Sockets
        self.connect = connections.connect
        self.refreshed = connections.refreshed
        self.greet = connections.greet
        self.gone = connections.gone
        self.alive = connections.alive
        self.beat = connections.beat
        self.act = connections.act

        # Devices without a socket
        self.beat_by_rest = rest_beats.beat
        self.act_by_rest = rest_beats.acted
        self.lose_by_rest = rest_beats.gone
        self.hand_over = rest_beats.hand_over

        # Choices of a user
        self.set_mode = modes.set_mode
        self.set_custom = modes.set_custom
        self.set_both = modes.set_both
        self.set_idle_after = modes.set_idle_after

        # Ends
        self.sign_out = connections.sign_out
        self.wait_before_sign_out = UserRate(SIGNING_OUT, context.clock).take
        self.drop = connections.drop
        self.end_void = connections.end_void
        self.drop_void = connections.drop_void
        self.end_all = connections.end_all
        self.let_go_all = connections.let_go_all
        self.assert_again = connections.assert_again

    def turn(self) -> None:
        """Run the liveness checks that are due, and mark silent sessions as lost. Call every `TURN` seconds."""
        self.liveness.turn()
        if self.liveness.suspicious:
            self._tasks.spawn(self.liveness.lose(self.connections.on_silent), "silence")
