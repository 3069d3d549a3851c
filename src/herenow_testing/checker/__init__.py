"""`Checker` compares what clients were shown with what other clients did, and collects each broken promise."""

from herenow_testing.checker.checker import Checker

__all__ = ["Checker"]
