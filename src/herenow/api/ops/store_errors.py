"""Explain errors of Redis or Valkey to an operator. Does not import `node`, so that `herenow doctor` can use it."""

from __future__ import annotations

STORE_ERRORS = {
    "OOM": ("It is full and takes no writes.", "Raise its maxmemory, or find out what else fills it."),
    "READONLY": (
        "It is a replica and takes no writes.",
        "Has it failed over? Point the setting engine at the master, or use redis+sentinel:// to follow it.",
    ),
    "NOREPLICAS": (
        "It has too few replicas and takes no writes.",
        "Bring its replicas back, or lower min-replicas-to-write.",
    ),
    "MISCONF": (
        "It cannot write its snapshot and takes no writes.",
        "Check its log and its disk, or set stop-writes-on-bgsave-error no: herenow needs no snapshot.",
    ),
    "LOADING": ("It is loading its snapshot.", "Wait: it will answer by itself."),
    "MASTERDOWN": ("It is a replica without its master.", "Bring the master back."),
    "CLUSTERDOWN": ("Some slots of the cluster have no master.", "See CLUSTER INFO, and bring the masters back."),
    "BUSY": ("A script of another application blocks it.", "End it with SCRIPT KILL."),
    "NOAUTH": ("It requires a password.", "Put the password into the setting engine."),
    "WRONGPASS": ("It refuses the password.", "Correct the password in the setting engine."),
    "NOPERM": ("Its ACL forbids what herenow needs.", "Grant the rights that docs/operating.md lists."),
}
NO_REPLY = ("It does not answer.", "Is it running and reachable from here? Users stay connected meanwhile.")


def explain_store_error(message: str) -> tuple[str, str]:
    """Explain an error message of the live store, found by the error code in it, as (meaning, advice). Neither contains
    the store's address or its own text."""
    words = message.replace(":", " ").split()
    return next((STORE_ERRORS[word] for word in words if word in STORE_ERRORS), NO_REPLY)
