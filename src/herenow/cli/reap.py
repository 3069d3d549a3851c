"""`herenow reap`: a process without sockets that handles expired timeouts of users (grace, mode, idle).

Nodes do that too unless `reap = off`. Separate reapers take the load off nodes when many timeouts end at once. Several
reapers divide the shards among themselves, or by the flags given here.
"""

import math
import re

import click

from herenow.cli.fast_imports import fast_imports
from herenow.cli.flags import with_settings
from herenow.errors import ConfigurationError
from herenow.settings import Settings

SHORTEST, LONGEST = 0.05, 60.0
"""Allowed seconds between two polls: shorter ones load the store, longer ones process timeouts late."""

LARGEST = 10_000
"""Most users in one reply of the store: more would block the store for too long."""


@click.command()
@click.option("--shards", metavar="LIST", help="Process only these shards, for example 0-7 or 0,3,8-11.")
@click.option("--shard-id", metavar="N", help="Process only this shard.")
@click.option("--all-shards", is_flag=True, help="Process all shards (default).")
@click.option(
    "--poll-interval", metavar="SECONDS", default="1.0", show_default=True, help="Longest pause between two polls."
)
@click.option(
    "--batch-size", metavar="N", default="500", show_default=True, help="Users of one shard to process at a time."
)
@with_settings(
    "secret",
    "jwks_url",
    "jwks_file",
    "engine",
    "ledger",
    "namespace",
    "capacity",
    "token_max_ttl",
    "beat_every",
    "dead_after",
    "idle_after",
    "grace",
    "online_delay",
    "node_lease",
    "ledger_flush",
    "max_sessions_per_user",
    "log_format",
    "log_level",
)
@click.pass_context
def reap(
    ctx: click.Context,
    /,
    settings: Settings,
    *,
    shards: str | None,
    shard_id: str | None,
    all_shards: bool,
    poll_interval: str,
    batch_size: str,
) -> None:
    """Process expired timeouts in a separate process.

    Timeouts are reconnect windows, inactivity, and modes that end. Nodes process them too, unless reap = off. Needs a
    Redis or Valkey engine."""
    with fast_imports():
        from herenow.app import reap as run
        from herenow.node import Reaping

    if settings.engine == "memory://":
        raise ConfigurationError(
            "memory:// is inside the process of herenow serve, which processes timeouts itself: herenow reap needs Redis."
        )
    chosen = _chosen(shards, shard_id, all_shards=all_shards, count=settings.shards)
    ctx.exit(run(settings, Reaping(chosen, _interval(poll_interval), _size(batch_size), first=True)))


def _chosen(shards: str | None, shard_id: str | None, *, all_shards: bool, count: int) -> frozenset[int] | None:
    """Return the shards that the command-line flags select, out of `count` shards; None for all. Raises
    `ConfigurationError` if the flags contradict each other or name no such shard."""
    if (shards is not None) + (shard_id is not None) + all_shards > 1:
        raise ConfigurationError("--shards, --shard-id and --all-shards exclude each other: give only one of them.")
    if shard_id is not None:
        if not re.fullmatch(r"[0-9]{1,4}", shard_id) or int(shard_id) >= count:
            raise ConfigurationError(f"--shard-id = {shard_id!r} must be a shard from 0 to {count - 1}.")
        return frozenset({int(shard_id)})
    return None if shards is None else _listed(shards, count)


def _listed(text: str, count: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,4})\s*(?:-\s*([0-9]{1,4})\s*)?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not first <= last < count:
            raise ConfigurationError(
                f"--shards = {text!r} must be a list like 0-7 or 0,3,8-11, of shards from 0 to {count - 1}."
            )
        found.update(range(first, last + 1))
    return frozenset(found)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST <= seconds <= LONGEST:
        raise ConfigurationError(
            f"--poll-interval = {text!r} must be a number of seconds from {SHORTEST:g} to {LONGEST:g}."
        )
    return seconds


def _size(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= LARGEST:
        raise ConfigurationError(f"--batch-size = {text!r} must be a whole number from 1 to {LARGEST}.")
    return int(text)
