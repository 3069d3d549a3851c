"""Text renderings of every public contract: REST, codes, settings, frames, metrics, log events, store keys, schema.

Each function renders one contract from the running code. `test_frozen` compares the result with the committed file of
the same name; `python -m tests.frozen` writes the files after an intended change.
"""

import ast
import asyncio
import json
import sqlite3
import tempfile
from pathlib import Path

import msgspec
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from tests.api.world import SERVICE, serving

import herenow
from herenow.api.application import CONTRACT
from herenow.api.description.openapi import document
from herenow.engines.redis import Keys
from herenow.ledgers.sql import metadata
from herenow.ledgers.sqlite import SqliteLedger
from herenow.settings import Settings
from herenow.wire.codes import CLOSES, CODES
from herenow.wire.frames import Frame

FOLDER = Path(__file__).parent
ROOT = Path(herenow.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def openapi():
    return as_json(document(CONTRACT, max_bulk=1000))


def codes():
    rows = [msgspec.structs.asdict(code) | {"where": str(code.where)} for code in CODES.values()]
    closes = [msgspec.structs.asdict(row) | {"code": int(row.code)} for row in CLOSES.values()]
    return as_json({"codes": rows, "closes": closes})


def settings():
    return as_json(Settings.model_json_schema(mode="serialization"))


def frames():
    return as_json(msgspec.json.schema(Frame, schema_hook=lambda kind: {"title": str(kind)}))


def metrics():
    """Names, types, help texts and label names of `/metrics`; no values."""
    return asyncio.run(exposed())


async def exposed():
    async with serving() as world:
        text = (await world.get("/metrics", by=SERVICE)).text
    found = {}
    for line in text.splitlines():
        found[line if line.startswith("#") else labelled(line)] = None
    return "\n".join(found) + "\n"


def labelled(sample):
    """`name{label,…}` of a sample line."""
    name, _, rest = sample.rpartition(" ")[0].partition("{")
    return name + "".join(f" {pair.partition('=')[0]}" for pair in rest.rstrip("}").split(",") if pair)


def log_events():
    """Every log event of the source with its level and fields."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and is_log_call(node):
                level = ast.unparse(node.func).rpartition(".")[2]
                fields = " ".join(sorted(str(each.arg) for each in node.keywords))
                found.add(f"{level} {ast.unparse(node.args[0])} {fields}".rstrip())
    return "\n".join(sorted(found)) + "\n"


def is_log_call(node):
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and ast.unparse(node.func.value) in {"log", "self._log", "logger"}
        and bool(node.args)
    )


def store():
    """Keys of a Redis namespace, and its scripts without their comments."""
    keys = Keys("herenow", 2)
    lines = [f"{name} {value}" for name, value in sorted(vars(keys).items()) if name != "shards"]
    for shard in keys.shards:
        lines += [f"{shard.shard} {name} {value!r}" for name, value in sorted(vars(shard).items())]
        lines.append(f"{shard.shard} bucket {shard.bucket(17)!r}")
    for path in sorted(ROOT.rglob("*.lua"), key=lambda each: each.name):
        code = (line.partition("--")[0].rstrip() for line in path.read_text().splitlines())
        lines += ["", f"# {path.name}", *(line for line in code if line)]
    return "\n".join(lines) + "\n"


def schema():
    """The ledger schema: after all migrations in SQLite, and as created in PostgreSQL."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "herenow.db"
        asyncio.run(SqliteLedger(path).migrate())
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
            made = [sql for (sql,) in rows]
        connection.close()
    for table in metadata.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=postgresql.dialect())))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            made.append(str(CreateIndex(index).compile(dialect=postgresql.dialect())))
    return "\n".join(part.strip() for part in made) + "\n"


def as_json(value):
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


CONTRACTS = {
    "openapi.json": openapi,
    "codes.json": codes,
    "settings.json": settings,
    "frames.json": frames,
    "metrics.txt": metrics,
    "log-events.txt": log_events,
    "store.txt": store,
    "schema.sql": schema,
}
