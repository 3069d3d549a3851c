"""Fault injection: `FaultyEngine` fails by a plan (`Faults`, `Rule`), `Freezer` freezes or kills a simulated process."""

from herenow_testing.faults.faulty_engine import FaultyEngine
from herenow_testing.faults.freezing import Freezer
from herenow_testing.faults.plan import Call, Fault, Faults, Rule, StoreFaults

__all__ = ["Call", "Fault", "Faults", "FaultyEngine", "Freezer", "Rule", "StoreFaults"]
