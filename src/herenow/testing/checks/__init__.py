"""The parts of `herenow.testing.checker`: what is written down, and what is checked when."""
