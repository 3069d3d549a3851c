"""Benchmarks of a node, compared with a bare picows listener on the same core with the same frames."""
