"""`herenow import`: reads relations from a file and writes them to the ledger in batches, with a progress bar.

A batch is one transaction and repeated rows are harmless: after a bad line, fix it and run the same import again.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from herenow.cli.flags import with_settings
from herenow.ports import RelationRow
from herenow.settings import Settings
from herenow.wire.relation_rows import BadRow, parse_csv, parse_ndjson, relations_elsewhere

BATCH = 5_000  # rows per transaction: short enough that the writes of a running node hardly wait


@click.command("import")
@click.argument("file", type=click.File("rb"))
@with_settings("ledger")
def import_(settings: Settings, file: BinaryIO) -> None:
    """Import follows, contacts and rooms from a file.

    FILE is a path, or "-" for standard input. CSV lines are kind,a,b[,until]; NDJSON lines are objects with these keys.
    The kind is follow (a follows b), contact or room (a is the room, b the member).
    """
    with _bar() as bar:
        task = bar.add_task("rows", total=_size(file))
        counted = _counting(file, lambda bytes_read: bar.advance(task, bytes_read))
        read, changed = asyncio.run(_import(settings, _parsed(str(getattr(file, "name", "-")), counted)))
    click.echo(f"Imported {read} rows; {changed} of them were new.")


async def _import(settings: Settings, rows: Iterable[RelationRow | BadRow]) -> tuple[int, int]:
    from herenow.ledgers import open_ledger

    ledger = open_ledger(settings.ledger)
    read = changed = 0
    try:
        await ledger.open()
        for batch in _batches(rows):
            changed += await ledger.apply(_all_good(batch, read, settings))
            read += len(batch)
    finally:
        await ledger.close()
    return read, changed


def _batches(rows: Iterable[RelationRow | BadRow]) -> Iterator[list[RelationRow | BadRow]]:
    remaining = iter(rows)
    while batch := list(itertools.islice(remaining, BATCH)):
        yield batch


def _all_good(batch: list[RelationRow | BadRow], written: int, settings: Settings) -> list[RelationRow]:
    good: list[RelationRow] = []
    for row in batch:
        if isinstance(row, BadRow):
            raise click.ClickException(
                f"Line {row.line}: {row.message} {written} rows before it were imported; "
                "fix the line and run the import again, repeating rows is harmless."
            )
        if row.kind not in settings.edges_kept_here:
            raise click.ClickException(relations_elsewhere(row.kind, settings.relations))
        good.append(row)
    return good


def _parsed(name: str, lines: Iterator[bytes]) -> Iterator[RelationRow | BadRow]:
    """Parse the lines of a file of relations, by the suffix of its name. Without a known suffix, they are NDJSON if the
    first line starts with a brace, else CSV."""
    suffix = Path(name).suffix.lower()
    if suffix == ".csv":
        return parse_csv(lines)
    first = next(lines, b"")
    looks_like_json = suffix in (".ndjson", ".jsonl", ".json") or first.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")
    parse = parse_ndjson if looks_like_json else parse_csv
    return parse(itertools.chain([first], lines))


def _counting(file: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    for line in file:
        advance(len(line))
        yield line


def _size(file: BinaryIO) -> int | None:
    """The size of the file in bytes; None for a pipe (its progress bar has no end) and for an empty file."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except OSError:
        return None


def _bar() -> Progress:
    columns = (TextColumn("importing"), BarColumn(), TaskProgressColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
