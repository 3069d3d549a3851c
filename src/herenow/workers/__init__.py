"""Several processes on one address: a supervisor, its workers, and the messages between them.

    supervisor    starts the processes, replaces those that end, forwards signals
    worker        the worker's side
    worker_link   the messages, over a pair of connected sockets
    restarts      how often a process may die, and the pause before the next start

This package does not know what a worker does: it is a node like any other, on a shared address.
"""
