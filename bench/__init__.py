"""What does a node cost? Measured beside a bare picows listener on the same core, with the same frames."""
