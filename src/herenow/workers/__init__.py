"""Several processes on one address: one that keeps them alive, and what they say to each other.

    supervisor   starts processes, replaces those that end, passes signals on
    worker       a process' side of it
    link         the messages between them, over a pair of sockets that ends with either
    restarts     how often a process may die, and how long to wait

What a worker does is not known here: it is a node like any other, on an address that it shares. The supervisor knows no
engine, no ledger and no socket of a client.
"""
