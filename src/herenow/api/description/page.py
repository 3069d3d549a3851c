"""The endpoints `/openapi.json` and `/docs`. Both are made at the first request and cached.

`/docs` is one plain HTML page, made from the OpenAPI document; it loads nothing else. The `type` of every problem response
links to a row of its table of codes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from html import escape
from typing import Any

from starlette.responses import Response

from herenow.api.description.openapi import document
from herenow.api.description.operations import Access, Media, Operation, ResponseDoc
from herenow.api.http.request import Call
from herenow.api.http.responses import JSON, Reply
from herenow.wire.codes import CODES, Where

Json = dict[str, Any]


class Description:
    """The endpoints that describe the given endpoints and themselves."""

    def __init__(self, contract: Iterable[Operation], *, max_bulk: int) -> None:
        self.operations = (
            Operation(
                "GET",
                "/openapi.json",
                self.openapi,
                "This document",
                {200: ResponseDoc("OpenAPI 3.1.", dict[str, Any])},
                access=Access.ANYONE,
            ),
            Operation(
                "GET",
                "/docs",
                self.docs,
                "This document as an HTML page",
                {200: ResponseDoc("A self-contained page.", str, Media.HTML)},
                access=Access.ANYONE,
            ),
        )
        self._contract = (*contract, *self.operations)
        self._max_bulk = max_bulk

    @cached_property
    def document(self) -> bytes:
        return json.dumps(self._described, ensure_ascii=False).encode()

    @cached_property
    def page(self) -> bytes:
        return "".join(_page(self._described)).encode()

    @property
    def _described(self) -> Json:
        return document(self._contract, max_bulk=self._max_bulk)

    async def openapi(self, _call: Call) -> Response:
        """GET /openapi.json: the OpenAPI document of all endpoints."""
        return Reply(self.document, media=JSON)

    async def docs(self, _call: Call) -> Response:
        """GET /docs: the OpenAPI document as an HTML page."""
        return Reply(self.page, media="text/html; charset=utf-8", headers=(("content-security-policy", _CSP),))


_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
code, pre { font: .9em ui-monospace, monospace; background: var(--soft); border-radius: .2rem; padding: 0 .2em; }
pre { padding: .6rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top; }
tr:target { background: #fd04; }
.method { display: inline-block; min-width: 4.2em; font-weight: 600; }
"""


def _page(described: Json) -> Iterator[str]:
    info = described["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{info['title']}: the API</title>"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield f"<h1>{info['title']} {info['version']}</h1><p>{escape(info['description'])}</p>"
    yield "<p>For machines: <a href=/openapi.json>/openapi.json</a>.</p>"
    tag = None
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if operation["tags"] != tag:
                tag = operation["tags"]
                yield f"<h2>{escape(tag[0])}</h2>"
            yield from _operation(method, path, operation)
    yield from _shapes(described["components"]["schemas"])
    yield from _codes()
    yield "</html>"


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"<details id={operation['operationId']}><summary><span class=method>{method.upper()}</span> "
    yield f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
    yield f"<p>{_text(operation['description'])}</p>"
    if "parameters" in operation:
        yield "<table><tr><th>parameter<th>in<th>"
        for each in operation["parameters"]:
            yield f"<tr><td><code>{each['name']}</code><td>{each['in']}<td>{_text(each['description'])}"
        yield "</table>"
    if "requestBody" in operation:
        for media, content in operation["requestBody"]["content"].items():
            yield f"<p>Body, <code>{media}</code>: {_schema(content['schema'])}</p>"
    yield "<table><tr><th>answer<th>"
    for status, response in operation["responses"].items():
        yield f"<tr><td>{status}<td>{_response(response)}"
    yield "</table></details>"


def _response(response: Json) -> str:
    content = response.get("content", {})
    shapes = "".join(f" {_schema(each['schema'])}" for m, each in content.items() if m != Media.PROBLEM.value)
    return _text(response["description"]) + shapes


def _schema(schema: Json) -> str:
    """Return HTML for a JSON schema: a link if it has a name, otherwise the schema as JSON."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        return f"<a href=#shape-{name}>{name}</a>"
    if schema.get("type") == "array" and "$ref" in schema.get("items", {}):
        return f"array of {_schema(schema['items'])}"
    return f"<code>{escape(json.dumps(schema, ensure_ascii=False))}</code>"


def _shapes(schemas: Json) -> Iterator[str]:
    yield "<h2>Shapes</h2>"
    for name, schema in schemas.items():
        yield f"<details id=shape-{name}><summary><code>{name}</code></summary>"
        yield f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre></details>"


def _codes() -> Iterator[str]:
    yield "<h2>Codes</h2><table><tr><th>code<th>HTTP<th>meaning<th>retry?"
    for code in CODES.values():
        if Where.REST in code.where:
            yield f"<tr id={code.name}><td><code>{code.name}</code><td>{code.http}<td>{escape(code.meaning)}"
            yield f"<td>{'yes' if code.retry else ''}"
    yield "</table>"


def _text(text: str) -> str:
    """Convert a description to HTML: text in backticks becomes code, and lines that start with a dash become a list."""
    parts = escape(text).split("`")
    marked = "".join(f"<code>{part}</code>" if odd % 2 else part for odd, part in enumerate(parts))
    return marked.removeprefix("- ").replace("\n- ", "<br>")
