"""Would a node with these settings be let in by those that use this store? For `herenow doctor`.

All nodes of a store must agree on the ledger, the secret, the number of shards and the timings: the first one has written
them there, and `herenow serve` is refused where one differs. Here they are only read and compared, so it is said before,
and nothing is written, not even into an empty store. What a start would make anew (a ledger, a secret) cannot be the one in
use.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping

from herenow.cli.doctor.findings import Finding, fine, problem
from herenow.errors import HerenowError
from herenow.secret import resolve_secret, secret_path
from herenow.settings import Settings
from herenow.settings.model import without_password

REFUSED = "herenow serve is refused there"


def agreement(settings: Settings, theirs: Mapping[str, str]) -> Iterator[Finding]:
    """`theirs`: the terms in the store; none: nobody has used it."""
    if not theirs:
        return
    ours = asyncio.run(_terms(settings))
    compared = [name for name in ours if name in theirs]
    differing = [name for name in compared if ours[name] != theirs[name]]
    for name in differing:
        yield problem("engine", _sentence(name, ours[name], theirs[name], settings))
    if compared and not differing:
        yield fine("engine", "Its nodes have the same ledger, secret, shards and timings.")


def _sentence(name: str, here: str | None, there: str, settings: Settings) -> str:
    if name == "ledger":
        which = f"The ledger {without_password(settings.ledger)}"
        what = "does not exist yet, so it" if here is None else "exists, but"
        return (
            f"{which} {what} is not the one that the nodes on this store use, and {REFUSED}: point the setting ledger at "
            "theirs, or take another namespace."
        )
    if name == "secret":
        what = (
            "The nodes on this store verify tokens with public keys alone, and this one has a secret"
            if there == "none"
            else "The nodes on this store have another secret"
        )
        return f"{what}, so {REFUSED}: give all of them the same one by the setting secret, or take another namespace."
    said = f"{name} is {here} here and {there} for the nodes on this store, so {REFUSED}: set {name} to {there}"
    if name == "shards":
        return f"{said}, or take another namespace."
    return (
        f"{said}; to change it for all, stop every node, run HDEL {{{settings.namespace}}}:terms {name} in the store, and "
        "start them with the new value."
    )


async def _terms(settings: Settings) -> dict[str, str | None]:
    """As a node would say them. None: what is made at the first start; left out: what cannot be read, which others say."""
    from herenow.settings import agreed_terms

    said: dict[str, str | None] = {**agreed_terms(settings, "", None)}
    try:
        said["ledger"] = await _ledger_id(settings)
    except (HerenowError, sqlite3.Error, OSError):
        del said["ledger"]
    try:
        secret = _secret(settings)
    except HerenowError:
        del said["secret"]
    else:
        made = secret is None and settings.accepts_secret
        said["secret"] = None if made else agreed_terms(settings, "", secret)["secret"]
    return said


def _secret(settings: Settings) -> str | None:
    """The one that is configured or kept. None is made here."""
    if not settings.accepts_secret:
        return None
    path = secret_path(settings)
    if settings.secret is None and (path is None or not path.exists()):
        return None
    return resolve_secret(settings)


async def _ledger_id(settings: Settings) -> str | None:
    from herenow.ledgers import open_ledger
    from herenow.ledgers.sql import SqlLedger

    looked_at = open_ledger(settings.ledger)
    return await looked_at.found_id() if isinstance(looked_at, SqlLedger) else None
