"""The OpenAPI document, made from the same operations as the routes. msgspec makes the schemas of the shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from herenow import __version__
from herenow.api.description.operations import Access, Media, Operation, Parameter, code_of_id, codes_of
from herenow.api.http.problems import Problem
from herenow.api.request_shapes import ID_SCHEMA
from herenow.wire.codes import CODES

Json = dict[str, Any]

PUBLIC_NAMES = {
    "BatchAnswer": "Batch",
    "DeliveryLatency": "Delivery",
    "PreferencesAnswer": "Preferences",
    "StatusAnswer": "Status",
    "TargetLoad": "Target",
    "UsersByStatus": "Users",
}
"""Class name → name of its schema, where they differ because the public name has another meaning in the code."""

_REF = "#/components/schemas/{name}"
_SECURITY: dict[Access, list[Json]] = {
    Access.ANYONE: [],
    Access.USER: [{"bearer": []}, {"query": []}],
    Access.SERVICE: [{"bearer": []}, {"query": []}],
    Access.OPERATOR: [{"bearer": []}, {"query": []}, {}],
}
_ACCESS_NOTES = {
    Access.ANYONE: "Needs no token.",
    Access.USER: "Needs a token.",
    Access.SERVICE: "Needs a service token.",
    Access.OPERATOR: "",
}
_NO_SCOPE = "none"  # value of `x-herenow-scope` for endpoints without a token


def document(operations: Iterable[Operation], *, max_bulk: int) -> Json:
    operations = tuple(operations)
    schemas, components = _schemas(operations)
    paths: dict[str, Json] = defaultdict(dict)
    for operation in operations:
        paths[operation.path][operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "herenow",
            "version": __version__,
            "description": "Presence of users, shown only to those who may see it. Times are epoch milliseconds, durations "
            f"are seconds. A request may contain at most {max_bulk} ids. All errors have the same shape and a code.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "query": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


class _Shapes:
    """Finds the msgspec schema of a shape, by identity."""

    def __init__(self, shapes: list[object], schemas: Iterable[Json]) -> None:
        self._found = list(zip(shapes, schemas, strict=True))

    def of(self, shape: object) -> Json:
        return next(schema for known, schema in self._found if known is shape)


def _schemas(operations: Iterable[Operation]) -> tuple[_Shapes, Json]:
    shapes: list[object] = [Problem]
    for operation in operations:
        if operation.body is not None:
            shapes.append(operation.body.shape)
        shapes += [answer.shape for answer in operation.answers.values() if answer.shape is not None]
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    published = {PUBLIC_NAMES.get(name, name): _published(schema) for name, schema in components.items()}
    return _Shapes(shapes, map(_published, schemas)), published


def _published(schema: Json) -> Json:
    """Return a JSON schema as it is published: with the class names replaced by `PUBLIC_NAMES`, and without `type`
    beside `enum`, whose values imply it."""
    left_out = {"type"} if "enum" in schema else set()
    return {name: _published_part(name, part) for name, part in schema.items() if name not in left_out}


def _published_part(name: str, part: object) -> object:
    if isinstance(part, dict):
        return _published(part)
    if isinstance(part, list):
        return [_published_part(name, each) for each in part]
    if name in ("$ref", "title"):
        place, slash, shape = str(part).rpartition("/")
        return place + slash + PUBLIC_NAMES.get(shape, shape)
    return part


def _operation(operation: Operation, shapes: _Shapes) -> Json:
    described: Json = {
        "operationId": operation.handle.__name__ + "_" + operation.method.lower(),
        "tags": [_tag(operation.path)],
        "summary": operation.summary,
        "description": " ".join(
            filter(None, (operation.about, _ACCESS_NOTES[operation.access], _scope_note(operation)))
        ),
        "security": _SECURITY[operation.access],
        "x-herenow-scope": _NO_SCOPE if operation.scope is None else operation.scope.value,
        "responses": _responses(operation, shapes),
    }
    parameters = [*map(_in_path, operation.path_names), *map(_in_query, operation.query)]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = shapes.of(operation.body.shape)
        if operation.body.media is Media.NDJSON:
            schema = {"type": "array", "items": schema, "description": "One JSON object per line."}
        described["requestBody"] = {
            "required": operation.body.required,
            "content": {operation.body.media.value: {"schema": schema}},
        }
    return described


def _scope_note(operation: Operation) -> str:
    return "" if operation.scope is None else f"Scope of service tokens: `{operation.scope}`."


def _tag(path: str) -> str:
    """The OpenAPI tag of an endpoint: the first segment of its path after `/api/v1/`; for other paths `operations`."""
    words = path.removeprefix("/api/v1/").split("/")
    return words[0] or "operations"


def _in_path(name: str) -> Json:
    kind = name if name in ("device", "room") else "user"
    schema = {"type": "string", "minLength": 1, "maxLength": 128}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"Id of a {kind}, percent-encoded. {ID_SCHEMA['description']} Otherwise `{code_of_id(name)}`.",
        "schema": schema,
    }


def _in_query(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.about,
        "schema": parameter.schema,
    }


def _responses(operation: Operation, shapes: _Shapes) -> Mapping[str, Json]:
    responses: dict[int, Json] = {}
    for status, answer in operation.answers.items():
        responses[status] = {"description": answer.about}
        if answer.shape is not None:
            responses[status]["content"] = {answer.media.value: {"schema": shapes.of(answer.shape)}}
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in codes_of(operation):
        by_status[CODES[code].http].append(code)
    for status, codes in by_status.items():
        responses[status] = _refusals(status, sorted(codes), shapes)
    return {str(status): responses[status] for status in sorted(responses)}


def _refusals(status: int, codes: list[str], shapes: _Shapes) -> Json:
    described: Json = {
        "description": "\n".join(f"- `{code}`: {CODES[code].meaning}" for code in codes),
        "content": {
            Media.PROBLEM.value: {"schema": {"allOf": [shapes.of(Problem), {"properties": {"code": {"enum": codes}}}]}}
        },
    }
    if status == 401:
        described["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}
    elif any(CODES[code].retry for code in codes):
        described["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
    return described
