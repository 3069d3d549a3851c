"""What a node does: it knows no socket and no Redis, only the ports, the core and the wire's shapes."""
