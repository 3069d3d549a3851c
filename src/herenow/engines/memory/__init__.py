"""An engine inside this process: the live store of a single node, or of several nodes in one test."""

from herenow.engines.memory.memory_engine import MemoryEngine, MemoryStore, wall_clock

__all__ = ["MemoryEngine", "MemoryStore", "wall_clock"]
