"""Terms check of `herenow doctor`: whether the store admits a node with these settings.

All nodes of a store must have the same ledger, secret, number of shards and timings. The first node writes these terms to
the store; `herenow serve` fails if one differs. This check only reads and compares them. A ledger or secret that the first
start would create differs from the one in use.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping

from herenow.cli.doctor.findings import Finding, fine, problem
from herenow.errors import HerenowError
from herenow.ports import agree, remedy
from herenow.secret import resolve_secrets, secret_path
from herenow.settings import Settings
from herenow.settings.model import without_password

REFUSED = "herenow serve would not start"


def agreement(settings: Settings, theirs: Mapping[str, str]) -> Iterator[Finding]:
    """Compare these settings with the terms, the settings that all nodes of the store share, and yield each difference.
    `theirs` are the terms in the store, empty if no node has used it."""
    if not theirs:
        return
    ours = asyncio.run(_terms(settings))
    compared = [name for name in ours if name in theirs]
    differing = [name for name in compared if not agree(ours[name] or "", theirs[name])]
    for name in differing:
        yield problem("live store", _sentence(name, ours[name], theirs[name], settings))
    if compared and not differing:
        yield fine("live store", "Its nodes have the same database, secret, shards and timings.")


def _sentence(name: str, here: str | None, there: str, settings: Settings) -> str:
    todo = remedy(name, settings.namespace)
    if name == "ledger":
        which = f"The database {without_password(settings.ledger)}"
        what = "does not exist yet, so it" if here is None else "exists, but"
        return f"{which} {what} is not the one that the nodes on this store use, so {REFUSED}: {todo}."
    if name == "secret":
        what = (
            "The nodes on this store verify tokens only with public keys, and this one has a secret"
            if there == "none"
            else "The nodes on this store have another secret"
        )
        return f"{what}, so {REFUSED}: give all of them the same one by the setting secret; {todo}."
    difference = f"{name} is {here} here and {there} for the nodes on this store, so {REFUSED}: set {name} to {there}"
    return f"{difference}; {todo}."


async def _terms(settings: Settings) -> dict[str, str | None]:
    """Return the terms (the settings that all nodes of a store share) of a node with these settings. A value is None if
    the first start would create it. A term that cannot be read is left out; other checks report that."""
    from herenow.settings import agreed_terms

    terms: dict[str, str | None] = {**agreed_terms(settings, "", ())}
    try:
        terms["ledger"] = await _ledger_id(settings)
    except (HerenowError, sqlite3.Error, OSError):
        del terms["ledger"]
    try:
        secrets = _secrets(settings)
    except HerenowError:
        del terms["secret"]
    else:
        terms["secret"] = None if secrets is None else agreed_terms(settings, "", secrets)["secret"]
    return terms


def _secrets(settings: Settings) -> tuple[str, ...] | None:
    """The configured or stored secrets; None if the start of a server would generate one."""
    path = secret_path(settings)
    if settings.accepts_secret and settings.secret is None and (path is None or not path.exists()):
        return None
    return resolve_secrets(settings)


async def _ledger_id(settings: Settings) -> str | None:
    from herenow.ledgers import open_ledger
    from herenow.ledgers.sql import SqlLedger

    ledger = open_ledger(settings.ledger)
    return await ledger.found_id() if isinstance(ledger, SqlLedger) else None
