"""A simulated cluster (`World`) with its clients in one process, under simulated time.

Also the parts to build another one: clocks, a ledger in memory, and the protocols (`Scene`, `Witness`) through which a
`herenow_testing.checker.Checker` observes a cluster.
"""

from herenow_testing.world.manual_clock import START, LoopClock, ManualClock
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.moved_loop import MovedLoop
from herenow_testing.world.scene import Counts, Device, Place, Scene, Shown, Way, Witness
from herenow_testing.world.truth import Bounds
from herenow_testing.world.world import Client, Gone, Link, SimNode, Store, World

__all__ = [
    "START",
    "Bounds",
    "Client",
    "Counts",
    "Device",
    "Gone",
    "Link",
    "LoopClock",
    "ManualClock",
    "MemoryLedger",
    "MovedLoop",
    "Place",
    "Scene",
    "Shown",
    "SimNode",
    "Store",
    "Way",
    "Witness",
    "World",
]
