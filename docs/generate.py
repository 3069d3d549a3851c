"""Write the reference pages from the tables in the code: `python docs/generate.py`. A test checks that they are fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from herenow.api.application import CONTRACT
from herenow.settings import Settings
from herenow.settings.model import about, allowed, unit_of
from herenow.wire.codes import CLOSES, CODES, Where
from herenow.wire.inputs import SCOPE_MEANINGS

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    return {"codes.md": "\n".join(codes()) + "\n", "settings.md": "\n".join(settings()) + "\n"}


def codes() -> Iterator[str]:
    yield "# Codes\n\nGenerated from `wire/codes.py` and the endpoints. Codes are never reused.\n\n## Errors and denials\n"
    yield "| code | HTTP | where | retry? | meaning |\n|---|---|---|---|---|"
    for code in CODES.values():
        where = ", ".join(name for flag, name in _WHERE.items() if flag in code.where)
        yield f"| `{code.name}` | {code.http} | {where} | {_yes(code.retry)} | {code.meaning} |"
    yield "\n## Close codes of a WebSocket\n\n| code | retry? | meaning |\n|---|---|---|"
    for close in CLOSES.values():
        yield f"| {int(close.code)} | {_yes(close.retry)} | {close.meaning} |"
    yield "\n## Scopes of service tokens\n\n| scope | permits | endpoints |\n|---|---|---|"
    for scope, meaning in SCOPE_MEANINGS.items():
        endpoints = ", ".join(f"`{each.method} {each.path}`" for each in CONTRACT if each.scope is scope)
        yield f"| `{scope}` | {meaning} | {endpoints or 'none yet'} |"


def settings() -> Iterator[str]:
    yield (
        "# Settings\n\nGenerated from `settings/model.py`. Each is a flag (`--dead-after 90`), a variable\n"
        "(`HERENOW_DEAD_AFTER`, or `HERENOW_DEAD_AFTER_FILE` for a file that holds it) and a key of `herenow.toml`.\n"
    )
    yield "| setting | default | unit | meaning | allowed |\n|---|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        yield f"| `{name}` | {default} | {unit_of(field)} | {about(field)} | {allowed(field)} |"


_WHERE = {Where.WEBSOCKET: "WebSocket", Where.DENIAL: "denial", Where.REST: "REST", Where.STREAM: "stream"}


def _yes(value: bool) -> str:  # noqa: FBT001 - it is all there is
    return "yes" if value else "no"


if __name__ == "__main__":
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
